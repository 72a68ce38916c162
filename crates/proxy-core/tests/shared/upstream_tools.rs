//! The iptables programs as upstream runs them.

use std::fmt::Write as _;
use std::io::Write as _;
use std::process::{Command, Output, Stdio};

/// A rule in a built-in chain that jumps to a chain of upstream.
pub(crate) struct Jump {
    table: &'static str,
    from: &'static str,
    to: &'static str,
    /// Connection states that take the jump; empty: all.
    states: &'static str,
    comment: &'static str,
}

impl Jump {
    pub(crate) const fn new(
        [table, from, to]: [&'static str; 3],
        states: &'static str,
        comment: &'static str,
    ) -> Self {
        Self {
            table,
            from,
            to,
            states,
            comment,
        }
    }

    fn arguments(&self, verb: &'static str) -> Vec<&'static str> {
        let mut words = vec![verb, self.from, "-t", self.table];
        if !self.states.is_empty() {
            words.extend(["-m", "conntrack", "--ctstate", self.states]);
        }
        if !self.comment.is_empty() {
            words.extend(["-m", "comment", "--comment", self.comment]);
        }
        words.extend(["-j", self.to]);
        words
    }
}

/// The iptables programs of one family and variant.
pub(crate) struct Tool(String);

impl Tool {
    /// Returns the programs whose names start with `base`.
    pub(crate) const fn new(base: String) -> Self {
        Self(base)
    }

    /// Creates a chain unless it exists.
    pub(crate) fn create_chain(&self, table: &str, name: &str) {
        let code = self.code(&["-N", name, "-t", table]);
        assert!(code == 0 || code == 1, "-N {name}: {code}");
    }

    /// Creates the target of a jump and inserts the jump, unless they exist.
    pub(crate) fn ensure(&self, jump: &Jump) {
        self.create_chain(jump.table, jump.to);
        match self.code(&jump.arguments("-C")) {
            0 => {}
            1 => assert_eq!(self.code(&jump.arguments("-I")), 0, "{}", jump.to),
            code => panic!("-C {}: {code}", jump.to),
        }
    }

    /// Removes a jump, which must exist.
    pub(crate) fn remove(&self, jump: &Jump) {
        let arguments = jump.arguments("-D");
        assert_eq!(self.code(&arguments), 0, "{arguments:?}");
    }

    /// Applies a document, which must succeed.
    pub(crate) fn restore(&self, document: &str) {
        let arguments = ["-w", "5", "--noflush", "--counters"];
        let output = run(&format!("{}-restore", self.0), &arguments, document);
        assert!(output.status.success(), "{output:?}\n{document}");
    }

    /// Returns the saved rules of a table.
    pub(crate) fn save(&self, table: &str) -> String {
        succeeds(&format!("{}-save", self.0), &["-t", table])
    }

    /// Returns the chains of a table.
    pub(crate) fn chains(&self, table: &str) -> Vec<String> {
        let saved = self.save(table);
        let declared = saved.lines().filter_map(|line| line.strip_prefix(':'));
        let names = declared.filter_map(|line| line.split(' ').next());
        names.map(str::to_owned).collect()
    }

    /// Returns the exit status of a command.
    pub(crate) fn code(&self, arguments: &[&str]) -> i32 {
        let arguments = [&["-w", "5"], arguments].concat();
        let output = run(&self.0, &arguments, "");
        output.status.code().expect("an exit status")
    }
}

/// Runs a program, which must succeed, and returns its output.
pub(crate) fn succeeds(program: &str, arguments: &[&str]) -> String {
    let output = run(program, arguments, "");
    assert!(
        output.status.success(),
        "{program} {arguments:?}: {output:?}"
    );
    String::from_utf8(output.stdout).expect("the output is UTF-8")
}

fn run(program: &str, arguments: &[&str], input: &str) -> Output {
    let mut command = Command::new(program);
    let command = command.args(arguments).stdin(Stdio::piped());
    let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the program is installed");
    let mut stdin = child.stdin.take().expect("stdin is piped");
    let written = stdin.write_all(input.as_bytes());
    drop(stdin);
    let output = child.wait_with_output().expect("the program exits");
    assert!(written.is_ok() || !output.status.success(), "{output:?}");
    output
}

/// Writes lines that create or flush chains.
pub(crate) fn declare<'a>(chains: impl IntoIterator<Item = &'a str>, to: &mut String) {
    for chain in chains {
        writeln!(to, ":{chain} - [0:0]").expect("writing to a String succeeds");
    }
}
