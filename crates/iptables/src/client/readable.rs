//! `Debug` of errors as a sentence.
//!
//! The first error that a program prints is often that of
//! `fn main() -> Result<(), Box<dyn Error>>`, which prints `Debug`. vipline-netlink has a copy:
//! the parser does not depend on it.

use std::error::Error;
use std::fmt;

/// Writes the message of an error, and those of its sources after colons.
pub(crate) fn fmt_sentence(error: &dyn Error, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    write!(f, "{error}")?;
    let mut source = error.source();
    while let Some(error) = source {
        write!(f, ": {error}")?;
        source = error.source();
    }
    Ok(())
}

/// Implements `Debug` for an error: a sentence for `{:?}`, and the fields for `{:#?}`.
///
/// The variants are listed without `..`, so that a new field is an error until it is listed.
macro_rules! readable_debug {
    ($error:ty { $($variant:ident $({ $($field:ident),+ })? $(($value:ident))?),+ $(,)? }) => {
        impl std::fmt::Debug for $error {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                if !f.alternate() {
                    return $crate::client::readable::fmt_sentence(self, f);
                }
                match self {
                    $(Self::$variant $({ $($field),+ })? $(($value))? => {
                        $crate::client::readable::readable_debug!(@fields f $variant $({ $($field),+ })? $(($value))?)
                    })+
                }
            }
        }
    };
    (@fields $f:ident $variant:ident) => {
        $f.write_str(stringify!($variant))
    };
    (@fields $f:ident $variant:ident ($value:ident)) => {
        $f.debug_tuple(stringify!($variant)).field($value).finish()
    };
    (@fields $f:ident $variant:ident { $($field:ident),+ }) => {
        $f.debug_struct(stringify!($variant))
            $(.field(stringify!($field), $field))+
            .finish()
    };
}

pub(crate) use readable_debug;
