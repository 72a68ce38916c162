//! Output to stdout.

use std::io::{self, ErrorKind, Write};

use crate::failure::Failure;

/// Prints a text. A closed pipe is not an error.
///
/// # Errors
///
/// The text cannot be written.
pub fn print(text: &str) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    let written = stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush());
    match written {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Failure::machine(format_args!("write to stdout: {error}")))
        }
        _ => Ok(()),
    }
}
