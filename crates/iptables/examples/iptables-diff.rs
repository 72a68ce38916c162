//! Prints the input of `iptables-restore --noflush` that leads from one IPv4 save to
//! another.
//! Either file may be a hand-written document for `iptables-restore`.
//!
//! Run it with `cargo run --example iptables-diff BEFORE AFTER`.
#![allow(
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "the program reads files and prints"
)]

use std::error::Error;
use std::{env, fs};

use vipline_iptables::{Family, Object, Restore, Ruleset, Tables, Variant, diff};

fn main() -> Result<(), Box<dyn Error>> {
    let mut paths = env::args().skip(1);
    let mut read = || -> Result<String, Box<dyn Error>> {
        let path = paths.next().ok_or("usage: iptables-diff BEFORE AFTER")?;
        Ok(fs::read_to_string(path)?)
    };
    let (before, after) = (read()?, read()?);
    print!("{}", document(&before, &after)?);
    Ok(())
}

/// Returns the document that leads from one save to another.
pub(crate) fn document(before: &str, after: &str) -> Result<String, Box<dyn Error>> {
    let edits = diff(objects(before)?, &objects(after)?);
    Ok(Restore::from_edits(&edits).to_string())
}

/// Returns the chains of a document, with their rules in the form of a save.
fn objects(text: &str) -> Result<Vec<Object>, Box<dyn Error>> {
    let document = Tables::parse(text)?;
    let ruleset = Ruleset::from_save(&document, Family::V4, Variant::Nft)?;
    Ok(ruleset.objects()?)
}
