//! Runs the commands of `tests/commands` with this crate and with `ipset`, and compares
//! the answers and the sets.
//!
//! A file has sections. Each line of a section is a command that `ipset` accepts (`+`)
//! or rejects (`-`), or a comparison of all sets (`=`). `{A..B}` stands for the numbers
//! from A to B, with one command each.

#![allow(clippy::print_stdout, reason = "the counts are the output")]

use std::collections::BTreeMap;

use vipline_ipset::{Commands, SetType};

use crate::lab::Lab;

/// Files about types that the kernel of the host lacks.
const GUEST_FILES: [&str; 4] = [
    include_str!("../commands/hash-ip-mark.txt"),
    include_str!("../commands/hash-mac.txt"),
    include_str!("../commands/hash-net-net.txt"),
    include_str!("../commands/hash-net-port-net.txt"),
];

/// All other files of `tests/commands`.
const FILES: [&str; 14] = [
    include_str!("../commands/bitmap-ip-mac.txt"),
    include_str!("../commands/bitmap-ip.txt"),
    include_str!("../commands/bitmap-port.txt"),
    include_str!("../commands/comments.txt"),
    include_str!("../commands/hash-ip-port-ip.txt"),
    include_str!("../commands/hash-ip-port-net.txt"),
    include_str!("../commands/hash-ip-port.txt"),
    include_str!("../commands/hash-ip.txt"),
    include_str!("../commands/hash-net-iface.txt"),
    include_str!("../commands/hash-net-port.txt"),
    include_str!("../commands/hash-net.txt"),
    include_str!("../commands/list-set.txt"),
    include_str!("../commands/options.txt"),
    include_str!("../commands/restore.txt"),
];

/// A line of a file.
enum Step {
    /// The start of a section.
    Section(String),
    /// Whether `ipset` accepts the command, and the command.
    Command(bool, String),
    /// A comparison of all sets.
    Compare,
}

fn steps(files: &[&str]) -> Vec<Step> {
    let lines = files.iter().flat_map(|file| file.lines());
    lines.flat_map(step).collect()
}

fn step(line: &str) -> Vec<Step> {
    if let Some(title) = line.strip_prefix('[') {
        return vec![Step::Section(title.trim_end_matches(']').to_owned())];
    }
    let commands = |accepted, text| expanded(text).map(move |text| Step::Command(accepted, text));
    match line.split_once(' ') {
        Some(("+", command)) => commands(true, command).collect(),
        Some(("-", command)) => commands(false, command).collect(),
        _ if line == "=" => vec![Step::Compare],
        _ if line.is_empty() => Vec::new(),
        _ => panic!("{line}"),
    }
}

/// Returns a command for each number of `{A..B}`.
fn expanded(text: &str) -> impl Iterator<Item = String> + use<> {
    let range = text.split_once('{').and_then(|(start, rest)| {
        let (range, end) = rest.split_once('}')?;
        let (from, to) = range.split_once("..")?;
        let range = from.parse::<u32>().unwrap()..=to.parse().unwrap();
        Some((start.to_owned(), range, end.to_owned()))
    });
    let (start, range, end) = range.unwrap_or_else(|| (text.to_owned(), 0..=0, String::new()));
    let single = start.len() == text.len();
    range.map(move |number| match single {
        true => start.clone(),
        false => format!("{start}{number}{end}"),
    })
}

/// The answers of `ipset` to all steps.
struct Answers {
    /// Errors by index of the step.
    errors: BTreeMap<usize, String>,
    /// Saved sets of each comparison.
    states: Vec<Vec<String>>,
}

/// Runs all steps with few processes of `ipset`.
///
/// An unknown type before each command marks its errors, and `version` before each
/// `save` marks the output.
/// The option `-exist` stays in effect for all later commands of a process.
fn answers(steps: &[Step]) -> Answers {
    let lab = Lab::new();
    let (mut errors, mut output, mut input) = (String::new(), String::new(), String::new());
    for (index, step) in steps.iter().enumerate() {
        input += &match step {
            Step::Section(_) => format!("create zz mark{index}\nflush\ndestroy\n"),
            Step::Command(_, command) => format!("create zz mark{index}\n{command}\n"),
            Step::Compare => "version\nsave\n".to_owned(),
        };
        let ends = matches!(step, Step::Command(_, command) if is_lenient(command));
        if ends || index + 1 == steps.len() {
            let done = lab.run("ipset", &["-"], &std::mem::take(&mut input));
            assert!(done.status.success(), "{done:?}");
            errors += &String::from_utf8(done.stderr).unwrap();
            output += &String::from_utf8(done.stdout).unwrap();
        }
    }
    let output = output.replace("ipset> ", "");
    let states = output.split("ipset v7").skip(1);
    let states = states.map(|state| comparable(state.split_once('\n').unwrap().1));
    Answers {
        errors: marked(&errors),
        states: states.collect(),
    }
}

fn is_lenient(command: &str) -> bool {
    command
        .split(' ')
        .any(|word| matches!(word, "-!" | "-exist"))
}

/// Returns the first error after each mark.
fn marked(text: &str) -> BTreeMap<usize, String> {
    let (mut errors, mut index) = (BTreeMap::new(), 0);
    for line in text.lines() {
        let mark = line.split_once("typename 'mark");
        if let Some((number, _)) = mark.and_then(|(_, rest)| rest.split_once('\'')) {
            index = number.parse().unwrap();
        } else if line.starts_with("ipset v") || line.contains(" is NOT in set ") {
            errors.entry(index).or_insert_with(|| line.to_owned());
        }
    }
    errors
}

/// Returns sorted lines without what differs between two runs: remaining timeouts, the
/// random number of a hash, and sizes that depend on this number.
fn comparable(text: &str) -> Vec<String> {
    let line = |line: &str| {
        let is_entry = line.starts_with("add");
        let (mut kept, mut words) = (Vec::new(), line.split(' '));
        while let Some(word) = words.next() {
            match word {
                "timeout" if is_entry => {
                    let has_end = words.next() != Some("0");
                    kept.push(if has_end { "timeout T" } else { "timeout 0" });
                }
                "initval" | "hashsize" | "bucketsize" if !is_entry => {
                    words.next();
                }
                // ipset does not print `forceadd`.
                "forceadd" if !is_entry => {}
                word => kept.push(word),
            }
        }
        kept.join(" ")
    };
    let mut lines: Vec<String> = text.lines().map(line).collect();
    lines.sort();
    lines
}

#[test]
fn commands_have_the_same_effect_as_with_ipset() {
    let (commands, accepted) = compare(&FILES);
    assert!(
        commands > 1_900 && accepted > 1_400,
        "{commands}, {accepted}"
    );
}

/// A host that lacks the types rejects all commands, also those of `ipset`.
#[test]
fn types_that_the_host_lacks_have_the_same_effect_as_with_ipset() {
    let (commands, accepted) = compare(&GUEST_FILES);
    let is_guest = Lab::new().supported().len() == SetType::ALL.len();
    let expected = if is_guest { 300 } else { 0 };
    assert!(
        commands > 400 && accepted >= expected,
        "{commands}, {accepted}"
    );
}

/// Runs the commands of files with both programs. Returns the number of commands, and of
/// those that `ipset` accepts.
fn compare(files: &[&str]) -> (usize, usize) {
    let steps = steps(files);
    let theirs = answers(&steps);
    let mut states = theirs.states.iter();
    let mut lab = Lab::new();
    let (mut commands, mut accepted, mut unparsed, mut different) = (0, 0, Vec::new(), Vec::new());
    let mut section = "";
    for (index, step) in steps.iter().enumerate() {
        match step {
            Step::Section(title) => {
                lab.load("flush\ndestroy\n").unwrap();
                section = title;
            }
            Step::Command(_, command) => {
                let error = theirs.errors.get(&index);
                let known = lab.headers();
                let ours = Commands::parse(command, &known);
                let answer = match &ours {
                    Ok(ours) => lab.client.commit(ours).map_err(|error| error.to_string()),
                    Err(error) => Err(error.to_string()),
                };
                commands += 1;
                accepted += usize::from(error.is_none());
                if error.is_none() && ours.is_err() {
                    unparsed.push(format!("[{section}] {command}: {answer:?}"));
                } else if error.is_none() != answer.is_ok() {
                    different.push(format!(
                        "[{section}] {command}: {answer:?}, ipset: {error:?}"
                    ));
                }
            }
            Step::Compare => {
                let ours = comparable(&lab.client.dump_all().unwrap().to_string());
                let theirs = states.next().unwrap();
                if ours != *theirs {
                    different.push(format!("[{section}] {ours:#?}\nipset: {theirs:#?}"));
                }
            }
        }
    }
    testkit::figures!(
        "{commands} commands of ipset: {accepted} accepted, {} of them not parsed; {} different \
         answers or states of {}",
        unparsed.len(),
        different.len(),
        commands + theirs.states.len()
    );
    let failures = [unparsed, different].concat();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert!(states.next().is_none());
    (commands, accepted)
}

/// The kernel of the host lacks some types. The recorded answers of all types are
/// compared without a kernel.
#[test]
fn commands_that_ipset_accepts_are_parsed_and_printed() {
    let (mut text, mut commands) = (String::new(), 0);
    for step in steps(&[&FILES[..], &GUEST_FILES].concat()) {
        match step {
            Step::Section(_) => text.clear(),
            Step::Command(true, command) => {
                let document = format!("{text}{command}\n");
                let parsed = Commands::parse(&document, &[]);
                let parsed = parsed.unwrap_or_else(|error| panic!("{error}: {command}"));
                let printed = parsed.to_string();
                let again = Commands::parse(&printed, &[]);
                let again = again.unwrap_or_else(|error| panic!("{error}: {printed}"));
                assert_eq!(again, parsed, "{command}");
                assert!(parsed.requests(7).is_ok());
                commands += 1;
                // Later commands need the sets, but not the entries.
                let last = parsed.as_slice().last().map(ToString::to_string).unwrap();
                if !["add", "del", "test"]
                    .iter()
                    .any(|verb| last.starts_with(verb))
                {
                    text = document;
                }
            }
            Step::Command(false, _) | Step::Compare => {}
        }
    }
    testkit::figures!("{commands} commands that ipset accepts are parsed and printed");
    assert!(commands > 1_500);
}
