//! Prints the sets of this network namespace in `ipset save` format, with resource
//! usage.
//!
//! Run it with `cargo run --example ipset-save -- [NAME]...`.
#![allow(clippy::print_stdout, reason = "the output is the purpose")]

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
    for dump in sets.iter() {
        let usage = dump.usage;
        println!(
            "# {}: {} entries, {} bytes, used by {}",
            dump.set.name,
            dump.entries.len(),
            usage.memory,
            usage.references
        );
        print!("{dump}");
    }
    Ok(())
}
