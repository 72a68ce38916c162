//! Loading of many rules with `nft`.

use testkit::nft;

/// Loads a script of one rule a line, after `declarations`, and returns the indexes of
/// the refused lines with the errors.
///
/// Lines that `nft` reports are left out of the next attempt. If `nft` names no line,
/// the script is halved.
pub(crate) fn load(declarations: &str, lines: &[String]) -> Vec<(usize, String)> {
    let mut kept: Vec<usize> = (0..lines.len()).collect();
    let mut refused = Vec::new();
    loop {
        let Err(error) = attempt(declarations, lines, &kept) else {
            refused.sort();
            return refused;
        };
        let before = declarations.lines().count();
        let mut named = reported(&error, before, kept.len());
        if named.is_empty() {
            assert!(!kept.is_empty(), "{declarations}{error}");
            named = vec![(crashing(declarations, lines, &kept), "crash".to_owned())];
        }
        for (position, why) in named.into_iter().rev() {
            refused.push((kept.remove(position), why));
        }
    }
}

/// Loads some of the lines atomically.
fn attempt(declarations: &str, lines: &[String], kept: &[usize]) -> Result<(), String> {
    script(&[], declarations, lines, kept)
}

fn script(
    args: &[&str],
    declarations: &str,
    lines: &[String],
    kept: &[usize],
) -> Result<(), String> {
    let mut text = declarations.to_owned();
    for at in kept {
        text += &lines[*at];
        text.push('\n');
    }
    let args = [args, &["-f", "-"]].concat();
    let output = nft::run(&args, &text);
    match output.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
}

/// Returns the position of a line on which `nft` fails without an error message.
fn crashing(declarations: &str, lines: &[String], kept: &[usize]) -> usize {
    let (mut start, mut end) = (0, kept.len());
    while end - start > 1 {
        let middle = usize::midpoint(start, end);
        let is_first = script(&["-c"], declarations, lines, &kept[start..middle]).is_err();
        (start, end) = if is_first {
            (start, middle)
        } else {
            (middle, end)
        };
    }
    start
}

/// Returns the positions of the lines that the errors name, in order.
fn reported(error: &str, before: usize, count: usize) -> Vec<(usize, String)> {
    let mut found: Vec<(usize, String)> = Vec::new();
    for line in error.lines() {
        let Some((number, why)) = line
            .strip_prefix("/dev/stdin:")
            .and_then(|rest| rest.split_once(':'))
        else {
            continue;
        };
        let position = number
            .parse()
            .ok()
            .and_then(|n: usize| n.checked_sub(before + 1));
        if let Some(position) = position.filter(|it| *it < count) {
            found.push((position, why.to_owned()));
        }
    }
    found.sort();
    found.dedup_by_key(|(position, _)| *position);
    found
}
