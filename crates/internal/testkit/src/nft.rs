//! The program `nft`, to read and change rulesets independently of the tested code.

use std::io::Write;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::scoped::Directory;

/// Runs `nft` in the namespace of the calling thread, with a script as standard input.
///
/// # Panics
///
/// If `nft` is not installed or does not read its input.
pub fn run(args: &[&str], script: &str) -> Output {
    let mut child = Command::new("nft")
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("nft is installed");
    let mut stdin = child.stdin.take().expect("standard input is piped");
    stdin
        .write_all(script.as_bytes())
        .expect("nft reads its input");
    drop(stdin);
    child.wait_with_output().expect("nft exits")
}

/// Runs `nft` under a name that no earlier call had. The kernel reports the name of a program
/// together with its changes, and a proxy repairs rarely what one program changes again and
/// again.
///
/// # Panics
///
/// If `nft` is not installed or fails.
#[track_caller]
pub fn succeeds_as_another_program(args: &[&str]) {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let folder = Directory::new().expect("a temporary directory");
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let link = folder.path().join(format!("nft-{number}"));
    let script = "ln -s \"$(command -v nft)\" \"$0\" && exec \"$0\" \"$@\"";
    let mut shell = Command::new("sh");
    let output = shell.args(["-c", script]).arg(link).args(args).output();
    let output = output.expect("a shell");
    assert!(output.status.success(), "nft {args:?}: {output:?}");
}

/// Runs `nft` as [`run`] does, and returns its standard output.
///
/// # Panics
///
/// If `nft` fails or writes to standard error.
#[track_caller]
pub fn succeeds(args: &[&str], script: &str) -> String {
    let output = run(args, script);
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && message.is_empty(),
        "nft {args:?}: {message}\n{script}"
    );
    String::from_utf8(output.stdout).expect("nft writes UTF-8")
}

/// Returns the sets and chains of a listing, each with its table, sorted.
///
/// `nft` lists sets and chains in the order of their creation.
pub fn blocks(listing: &str) -> Vec<String> {
    let (mut table, mut block, mut blocks) = ("", String::new(), Vec::new());
    for line in listing.lines() {
        if line.starts_with("table") {
            table = line;
        }
        block.push_str(line);
        block.push('\n');
        if line == "\t}" || line == "}" {
            blocks.push(format!("{table}\n{}", block.trim_start()));
            block.clear();
        }
    }
    blocks.sort();
    blocks
}
