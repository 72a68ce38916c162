//! A network namespace with a client, for comparison with programs.

use std::io::Write;
use std::process::{Command as Program, Output, Stdio};

use testkit::netns::Netns;
use vipline_ipset::{
    Client, Command, CommandAt, Commands, Entry, Error, Member, Name, Object, Reason, Set,
    SetFamily, SetType, Strictness,
};
use vipline_reconcile::diff;

/// A network namespace and a client in it.
pub(crate) struct Lab {
    pub(crate) netns: Netns,
    pub(crate) client: Client,
}

impl Lab {
    pub(crate) fn new() -> Self {
        let netns = Netns::new().unwrap();
        let client = netns.run(Client::open).unwrap();
        Self { netns, client }
    }

    pub(crate) fn run(&self, program: &str, args: &[&str], input: &str) -> Output {
        self.netns.run(|| {
            let mut child = Program::new(program)
                .args(args)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap();
            let mut stdin = child.stdin.take().unwrap();
            // The program may wait for its output to be read.
            std::thread::scope(|scope| {
                scope.spawn(move || stdin.write_all(input.as_bytes()).unwrap());
                child.wait_with_output().unwrap()
            })
        })
    }

    /// Runs a program and panics if it fails.
    #[track_caller]
    pub(crate) fn succeeds(&self, program: &str, args: &[&str], input: &str) -> String {
        let output = self.run(program, args, input);
        assert!(
            output.status.success(),
            "{program} {args:?}: {output:?}\n{input}"
        );
        String::from_utf8(output.stdout).unwrap()
    }

    pub(crate) fn save(&self) -> String {
        self.succeeds("ipset", &["save"], "")
    }

    /// Commits a document with this crate's client.
    pub(crate) fn load(&mut self, text: &str) -> Result<(), Error> {
        let sets: Vec<Set> = self.headers();
        self.client.commit(&Commands::parse(text, &sets).unwrap())
    }

    pub(crate) fn headers(&mut self) -> Vec<Set> {
        let sets = self.client.headers().unwrap();
        sets.into_iter().map(|listed| listed.set).collect()
    }

    /// Returns the set types that the kernel supports.
    pub(crate) fn supported(&mut self) -> Vec<SetType> {
        let mut has = |set_type: &SetType| {
            let families = [SetFamily::V4, SetFamily::Unspecified];
            let mut revisions = families
                .map(|it| self.client.revisions(set_type, it))
                .into_iter();
            revisions.any(|revisions| revisions.is_ok())
        };
        SetType::ALL.into_iter().filter(|it| has(it)).collect()
    }

    pub(crate) fn objects(&mut self) -> Vec<Object> {
        self.client.dump_all().unwrap().into_objects().collect()
    }

    /// Changes the kernel's state to these objects.
    pub(crate) fn reconcile(&mut self, wanted: &[Object]) -> Result<Commands, Error> {
        let commands = Commands::from_edits(&diff(self.objects(), wanted));
        self.client.commit(&commands)?;
        Ok(commands)
    }
}

/// Returns the objects of a document.
pub(crate) fn objects(text: &str) -> Vec<Object> {
    let commands = Commands::parse(text, &[]).unwrap();
    let object = |command: &Command| match command.clone() {
        Command::Create(set, _) => Object::Set(set),
        Command::Add(entry, _) => Object::Entry(entry),
        other => panic!("{other}"),
    };
    commands.as_slice().iter().map(object).collect()
}

/// Sorts lines and removes the random seed of hashes.
pub(crate) fn sorted(text: &str) -> Vec<String> {
    let plain = |line: &str| match line.split_once(" bucketsize 12 initval") {
        Some((line, _)) => line.to_owned(),
        None => line.to_owned(),
    };
    let mut lines: Vec<String> = text.lines().map(plain).collect();
    lines.sort();
    lines
}

pub(crate) fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

pub(crate) fn ip(set: &str, ip: &str) -> Entry {
    Entry::new(name(set), Member::Ip(ip.parse().unwrap()))
}

pub(crate) fn add(entry: Entry) -> Command {
    Command::Add(entry.into(), Strictness::Strict)
}

#[track_caller]
pub(crate) fn rejected(result: Result<(), Error>) -> (usize, String, Reason) {
    match result.unwrap_err() {
        Error::Rejected { rejected, done, .. } => {
            let [one] = &rejected[..] else {
                panic!("one command is rejected: {rejected:?}");
            };
            let CommandAt {
                index,
                command,
                reason,
                ..
            } = &one.request;
            assert_eq!(done, *index);
            (*index, command.to_string(), *reason)
        }
        other => panic!("{other}"),
    }
}
