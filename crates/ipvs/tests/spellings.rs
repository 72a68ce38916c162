//! Spellings of command lines that ipvsadm 1.31 accepts and rejects.

use vipline_ipvs::CommandLine;

const LINES: &str = include_str!("spellings.txt");

/// Number of accepted lines.
const ACCEPTED: usize = 232;

/// Number of rejected lines.
const REJECTED: usize = 158;

#[test]
fn command_lines_are_read_as_ipvsadm_reads_them() {
    let (mut accepted, mut rejected, mut wrong) = (0, 0, Vec::new());
    for line in LINES.lines().filter(|line| !line.starts_with('#')) {
        let (text, expected) = match (line.split_once(" => "), line.split_once(" ! ")) {
            (Some((text, short)), _) => {
                accepted += 1;
                (text, short)
            }
            (None, Some((text, error))) => {
                rejected += 1;
                (text, error)
            }
            (None, None) => panic!("{line}"),
        };
        let parsed: Result<CommandLine, _> = text.parse();
        let found = match &parsed {
            Ok(parsed) => parsed.to_string(),
            Err(error) => error.reason.to_owned(),
        };
        let again = found.parse::<CommandLine>();
        if found != expected || parsed.is_ok() && again != parsed {
            wrong.push(format!("{line}\n  {found}"));
        }
    }
    let right = accepted + rejected - wrong.len();
    testkit::figures!(
        "command lines: {right} of {} as ipvsadm",
        accepted + rejected
    );
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!((accepted, rejected), (ACCEPTED, REJECTED));
}
