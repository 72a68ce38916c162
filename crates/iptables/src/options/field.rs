//! Values of options, and the macros that define extensions by their options.

use std::borrow::Cow;
use std::fmt::{self, Display};

use crate::options::negatable::Negatable;
use crate::options::number::{self, Masked, MaskedMatch, Range};
use crate::options::quote::{self, Quoted};
use crate::options::{Parsed, Unsupported, Values, set_flag, set_once};

/// The value of an option.
pub(crate) trait Value<'a>: Sized {
    /// Parses the words of the value.
    fn take(option: &str, values: &mut Values<'_, 'a>) -> Result<Self, Unsupported>;

    /// Writes the option and its value with a leading space.
    fn write(&self, option: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result;
}

/// The field of an extension that has the value of an option.
pub(crate) trait Field<'a> {
    /// Parses the option. Returns an error if the field is already set.
    fn fill(&mut self, option: &str, values: &mut Values<'_, 'a>) -> Parsed;

    /// Writes the option with a leading space, if the field is set.
    fn write(&self, option: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result;
}

impl<'a> Field<'a> for bool {
    fn fill(&mut self, _: &str, _: &mut Values<'_, 'a>) -> Parsed {
        set_flag(self)
    }

    fn write(&self, option: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self {
            write!(f, " {option}")?;
        }
        Ok(())
    }
}

impl<'a, T: Value<'a>> Field<'a> for Option<T> {
    fn fill(&mut self, option: &str, values: &mut Values<'_, 'a>) -> Parsed {
        set_once(self, T::take(option, values)?)
    }

    fn write(&self, option: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Some(value) => value.write(option, f),
            None => Ok(()),
        }
    }
}

/// The value of an option without a value.
impl Value<'_> for () {
    fn take(_: &str, _: &mut Values<'_, '_>) -> Result<Self, Unsupported> {
        Ok(())
    }

    fn write(&self, option: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, " {option}")
    }
}

impl<'a, T: Value<'a>> Value<'a> for Negatable<T> {
    fn take(option: &str, values: &mut Values<'_, 'a>) -> Result<Self, Unsupported> {
        let negated = values.negated();
        Ok(Self::new(negated, T::take(option, values)?))
    }

    fn write(&self, option: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_negated() {
            f.write_str(" !")?;
        }
        self.value().write(option, f)
    }
}

/// A word that is printed without quotes, such as a name.
impl<'a> Value<'a> for Cow<'a, str> {
    fn take(_: &str, values: &mut Values<'_, 'a>) -> Result<Self, Unsupported> {
        values.bare()
    }

    fn write(&self, option: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, " {option} {}", quote::Bare(self))
    }
}

/// A text that is printed with quotes if it has other characters than letters, digits,
/// `-` and `_`.
///
/// Exhaustive: a text is its characters.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
pub struct Text<'a>(pub Cow<'a, str>);

impl<'a, T: Into<Cow<'a, str>>> From<T> for Text<'a> {
    fn from(text: T) -> Self {
        Self(text.into())
    }
}

impl Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Quoted(&self.0).fmt(f)
    }
}

impl<'a> Value<'a> for Text<'a> {
    fn take(_: &str, values: &mut Values<'_, 'a>) -> Result<Self, Unsupported> {
        values.word().map(Self)
    }

    fn write(&self, option: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, " {option} {self}")
    }
}

/// Implements [`Value`] for types of one word with a parser.
macro_rules! word_values {
    ($($ty:ty = $parse:expr,)*) => {$(
        impl $crate::options::field::Value<'_> for $ty {
            fn take(
                _: &str,
                values: &mut $crate::options::Values<'_, '_>,
            ) -> Result<Self, $crate::options::Unsupported> {
                values.parse($parse)
            }

            fn write(&self, option: &str, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, " {option} {self}")
            }
        }
    )*};
}

word_values! {
    u8 = number::parse_as,
    u16 = number::parse_as,
    u32 = number::parse_as,
    u64 = number::parse_as,
    Range<u8> = |text| Range::parse(text, ':', Self { first: 0, last: u8::MAX }),
    Range<u16> = |text| Range::parse(text, ':', Self { first: 0, last: u16::MAX }),
    Range<u32> = |text| Range::parse(text, ':', Self { first: 0, last: u32::MAX }),
    MaskedMatch = |text| Masked::parse(text).map(Self),
}

/// Defines an extension by its options, in the order in which they are printed.
///
/// `complete` returns whether all required options are set. Without it, at least one
/// option is required. `normalize` is called after each option.
macro_rules! extension {
    (
        $(#[$doc:meta])*
        pub struct $name:ident $(<$lt:lifetime>)? = $head:literal {
            $($(#[$field_doc:meta])* $field:ident: $ty:ty = $option:literal $(| $alias:literal)*,)*
        }
        $(complete $complete:expr;)?
        $(normalize $normalize:expr;)?
    ) => {
        $(#[$doc])*
        #[derive(Clone, Debug, Default, Eq, PartialEq)]
        pub struct $name $(<$lt>)? {
            $($(#[$field_doc])* pub $field: $ty,)*
        }

        impl<'a> $crate::options::Extension<'a> for $name $(<$lt>)? {
            fn open() -> Self {
                Self::default()
            }

            fn options() -> &'static [&'static str] {
                &[$($option, $($alias,)*)*]
            }

            fn min_options(&self) -> usize {
                $crate::options::field::extension!(@least self $($complete)?)
            }

            fn parse_option(
                &mut self,
                option: &str,
                values: &mut $crate::options::Values<'_, 'a>,
            ) -> $crate::options::Parsed {
                let _ = &values;
                match option {
                    $($option $(| $alias)* => {
                        $crate::options::field::Field::fill(&mut self.$field, option, values)?;
                    })*
                    _ => return Ok(false),
                }
                $({
                    let normalize: fn(&mut Self) = $normalize;
                    normalize(self);
                })?
                #[allow(unreachable_code, reason = "an extension without options")]
                Ok(true)
            }
        }

        impl $(<$lt>)? std::fmt::Display for $name $(<$lt>)? {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str($head)?;
                $($crate::options::field::Field::write(&self.$field, $option, f)?;)*
                Ok(())
            }
        }
    };
    (@least $it:ident) => {{ let _ = $it; 1 }};
    (@least $it:ident $complete:expr) => {{
        let complete: fn(&Self) -> bool = $complete;
        if complete($it) { 0 } else { usize::MAX }
    }};
}

/// Defines an enumeration of names. `compare` compares a word with a name.
macro_rules! names {
    (
        $(#[$doc:meta])*
        pub enum $enum:ident by $compare:path {
            $($(#[$variant_doc:meta])* $variant:ident = $name:literal $(| $alias:literal)*,)*
        }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
        pub enum $enum {
            $($(#[$variant_doc])* $variant,)*
        }

        impl $enum {
            /// Returns the name.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }

            fn parse(text: &str) -> Option<Self> {
                let names = [$((Self::$variant, $name) $(, (Self::$variant, $alias))*),*];
                let mut names = names.into_iter();
                names.find(|(_, name)| $compare(*name, text)).map(|(it, _)| it)
            }
        }

        impl std::fmt::Display for $enum {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.name())
            }
        }

        $crate::options::field::word_values! { $enum = $enum::parse, }
    };
}

pub(crate) use {extension, names, word_values};
