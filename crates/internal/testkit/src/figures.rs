//! Figures of passing tests.

use std::fmt;
use std::io::{Write, stdout};

/// Prints a line with figures, such as the number of compared cases.
///
/// Arguments are those of `println!`. The test harness captures the output of `println!` and
/// drops it if the test passes. It does not capture this line.
#[macro_export]
macro_rules! figures {
    ($($argument:tt)*) => {
        $crate::figures::print(format_args!($($argument)*))
    };
}

/// Prints a line with figures.
pub fn print(line: fmt::Arguments<'_>) {
    // A test does not fail because nobody reads its figures.
    let _ = writeln!(stdout().lock(), "{line}");
}
