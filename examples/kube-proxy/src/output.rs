//! Data, to stdout.

use std::io::{self, ErrorKind, Write};

use crate::failure::Failure;

/// Prints a text; a reader that has read enough is no error.
///
/// # Errors
///
/// It cannot be written.
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
