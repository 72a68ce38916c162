//! The sets of this network namespace, as `ipset save` prints them, with what they take.
//!
//! Run it with `cargo run -p vipline-ipset --example ipset-save -- [NAME]...`.
#![allow(clippy::print_stdout, reason = "it shows what it finds")]

use std::env;
use std::error::Error;

use vipline_ipset::{Client, Name};

fn main() -> Result<(), Box<dyn Error>> {
    let names = env::args().skip(1).map(|name| Name::new(&name));
    let names: Vec<Name> = names.collect::<Result<_, _>>()?;
    let mut client = Client::open()?;
    let sets = match names.as_slice() {
        [] => client.dump_all()?,
        names => client.dump(names)?,
    };
    for listed in sets.iter() {
        let usage = listed.usage;
        println!(
            "# {}: {} entries, {} bytes, used by {}",
            listed.set.name,
            listed.entries.len(),
            usage.memory,
            usage.references
        );
        print!("{listed}");
    }
    Ok(())
}
