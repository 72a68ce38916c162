//! The macros that define documents and their names.

use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

/// Unknown members of a document, by name.
pub type Other = Map<String, Value>;

/// Returns whether a member has its default, which HNS also assumes for an absent member.
pub(crate) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Reads a member. `null` is the default.
pub(crate) fn or_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// Defines a struct that is an object in JSON, with the names of its members.
///
/// A member with `?` after its name is absent if it has its default. The field `other`
/// has the members of other names.
macro_rules! document {
    ($(#[$meta:meta])* pub struct $name:ident { $($fields:tt)* }) => {
        document!(@ [$(#[$meta])* $name] [] $($fields)*);
    };
    (@ $head:tt [$($done:tt)*]
        $(#[$meta:meta])* $key:literal ? $field:ident: $type:ty, $($rest:tt)*) => {
        document!(@ $head [$($done)* $(#[$meta])* #[serde(
            rename = $key,
            deserialize_with = "crate::document::or_default",
            skip_serializing_if = "crate::document::is_default"
        )] pub $field: $type,] $($rest)*);
    };
    (@ $head:tt [$($done:tt)*]
        $(#[$meta:meta])* $key:literal $field:ident: $type:ty, $($rest:tt)*) => {
        document!(@ $head [$($done)* $(#[$meta])* #[serde(
            rename = $key,
            deserialize_with = "crate::document::or_default"
        )] pub $field: $type,] $($rest)*);
    };
    (@ [$(#[$meta:meta])* $name:ident] [$($done:tt)*]) => {
        $(#[$meta])*
        #[derive(Clone, Debug, Default, PartialEq, serde::Deserialize, serde::Serialize)]
        #[non_exhaustive]
        #[serde(default)]
        pub struct $name {
            $($done)*
            /// Unknown members. A name of another field must not be a key.
            #[serde(flatten)]
            pub other: crate::Other,
        }
    };
}

pub(crate) use document;

/// Defines an enum that is a string in JSON. `Other` has the names that are unknown.
macro_rules! names {
    ($(#[$meta:meta])* pub enum $name:ident { $($(#[$doc:meta])* $variant:ident = $text:literal,)+ }) => {
        $(#[$meta])*
        #[derive(Clone, Debug, Eq, Hash, PartialEq, serde::Deserialize, serde::Serialize)]
        #[non_exhaustive]
        #[serde(from = "Box<str>", into = "Box<str>")]
        pub enum $name {
            $($(#[$doc])* $variant,)+
            /// An unknown name, or the empty name.
            Other(Box<str>),
        }

        impl $name {
            /// All known names.
            pub const ALL: &[Self] = &[$(Self::$variant,)+];

            /// Returns the name.
            pub fn as_str(&self) -> &str {
                match self {
                    $(Self::$variant => $text,)+
                    Self::Other(name) => name,
                }
            }
        }

        impl Default for $name {
            /// Returns the empty name.
            fn default() -> Self {
                Self::Other(Box::default())
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl From<Box<str>> for $name {
            fn from(name: Box<str>) -> Self {
                match &*name {
                    $($text => Self::$variant,)+
                    _ => Self::Other(name),
                }
            }
        }

        impl From<$name> for Box<str> {
            fn from(name: $name) -> Self {
                name.as_str().into()
            }
        }
    };
}

pub(crate) use names;

/// Defines a type of flags that is a number in JSON. Unknown bits are kept.
macro_rules! flags {
    ($(#[$($meta:tt)*])* pub struct $name:ident { $($(#[$($doc:tt)*])* const $flag:ident = $bits:literal;)+ }) => {
        bitflags::bitflags! {
            $(#[$($meta)*])*
            #[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
            pub struct $name: u32 {
                $($(#[$($doc)*])* const $flag = $bits;)+
                const _ = !0;
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                self.bits().serialize(serializer)
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                u32::deserialize(deserializer).map(Self::from_bits_retain)
            }
        }
    };
}

pub(crate) use flags;
