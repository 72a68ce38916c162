//! The macro that makes [`Match`](crate::matches::Match) and
//! [`Target`](crate::targets::Target) of one list of extensions.
//!
//! # How to add an extension
//!
//! 1. Write `matches/NAME.rs` or `targets/NAME.rs`, for example like `matches/connlabel.rs`: a
//!    type with its options (the macro `extension!`, or `impl Extension` and `Display`), and
//!    `impl Structure` with the name and revision that `iptables-nft` uses and the fields of
//!    the uapi header.
//! 2. Add its `mod` line and its entry to the list in `mod.rs` of the folder.
//! 3. Add rules with every option to `tests/kernel/rules/encoded.rs`. Tests then compare the
//!    text with both variants of iptables and the structure with that of `iptables-nft`, and
//!    they fail for an extension of the list without a rule.

// Without the feature `nft` nothing calls the half of the extensions that writes structures.
#[cfg_attr(
    not(feature = "nft"),
    allow(dead_code, unreachable_pub, reason = "for the feature nft")
)]
pub(crate) mod structure;

#[cfg_attr(not(feature = "nft"), allow(dead_code, reason = "for the feature nft"))]
pub(crate) mod set_indexes;

/// Defines an enumeration of extensions, and dispatches to the types of the list, which
/// implement [`Extension`](crate::options::Extension) and
/// [`Structure`](crate::extensions::structure::Structure). Exports all public types of their modules.
///
/// An entry is `module: Variant(Type) = "name"`, and other names that iptables accepts.
///
/// The enumeration has the methods `open_other`, `fmt_other`, `encode_other` and
/// `decode_other` for variants and names that are in no list of types.
macro_rules! extensions {
    (
        $(#[$enum_doc:meta])*
        enum $enum:ident;
        $(#[$names_doc:meta])*
        NAMES;
        without_options { $($(#[$word_doc:meta])* $word:ident = $word_name:literal,)* }
        others { $($(#[$other_doc:meta])* $other:ident($other_ty:ty),)* }
        $($(#[$doc:meta])* $module:ident: $variant:ident($ty:ty) = $name:literal $(| $alias:literal)*,)*
    ) => {
        $(pub use self::$module::*;)*

        $(#[$enum_doc])*
        #[derive(Clone, Debug, Eq, PartialEq)]
        #[non_exhaustive]
        pub enum $enum<'a> {
            $($(#[$word_doc])* $word,)*
            $($(#[$doc])* $variant($ty),)*
            $($(#[$other_doc])* $other($other_ty),)*
        }

        impl<'a> $enum<'a> {
            $(#[$names_doc])*
            pub const NAMES: &'static [&'static str] = &[$($word_name,)* $($name),*];

            /// Returns the name; `None` for text and chains.
            pub fn name(&self) -> Option<&'static str> {
                match self {
                    $(Self::$word => Some($word_name),)*
                    $(Self::$variant(_) => Some($name),)*
                    $(Self::$other(_) => None,)*
                }
            }

            /// Returns the extension with this name, before any option is parsed.
            pub(crate) fn open(name: &str) -> Option<Self> {
                match name {
                    $($word_name => Some(Self::$word),)*
                    $($name $(| $alias)* => {
                        Some(Self::$variant($crate::options::Extension::open()))
                    })*
                    _ => Self::open_other(name),
                }
            }

            /// Returns the names of all options.
            pub(crate) fn options(&self) -> &'static [&'static str] {
                match self {
                    $(Self::$variant(_) => <$ty as $crate::options::Extension<'_>>::options(),)*
                    _ => &[],
                }
            }

            /// Returns the minimum number of options of a complete extension.
            pub(crate) fn min_options(&self) -> usize {
                match self {
                    $(Self::$variant(it) => $crate::options::Extension::min_options(it),)*
                    _ => 0,
                }
            }

            /// Parses an option with its values, if the extension has this option.
            pub(crate) fn parse_option(
                &mut self,
                option: &str,
                values: &mut $crate::options::Values<'_, 'a>,
            ) -> $crate::options::Parsed {
                match self {
                    $(Self::$variant(it) => {
                        $crate::options::Extension::parse_option(it, option, values)
                    })*
                    _ => Ok(false),
                }
            }

            /// Sets unset values to the defaults of the family.
            pub(crate) fn apply_family_defaults(&mut self, family: $crate::Family) {
                match self {
                    $(Self::$variant(it) => {
                        $crate::options::Extension::apply_family_defaults(it, family);
                    })*
                    _ => {}
                }
            }

            /// Returns the structure of the kernel. Returns `None` if the extension or one of
            /// its values has none.
            pub(crate) fn encode(
                &self,
                context: $crate::extensions::structure::Context<'_>,
            ) -> Option<$crate::extensions::structure::Encoded> {
                match self {
                    $(Self::$variant(it) => $crate::extensions::structure::encode(it, context),)*
                    _ => self.encode_other(context),
                }
            }

            /// Returns the extension of a structure.
            pub(crate) fn decode(
                name: &str,
                revision: u32,
                bytes: &[u8],
                context: $crate::extensions::structure::Context<'_>,
            ) -> Result<Self, $crate::extensions::structure::Undecoded> {
                let mut is_known = false;
                // Two extensions may have one name in the kernel: `state` is `conntrack`.
                $(if name == <$ty as $crate::extensions::structure::Structure>::NAME {
                    let found: Option<$ty> = $crate::extensions::structure::decode(revision, bytes, context);
                    if let Some(it) = found {
                        return Ok(Self::$variant(it));
                    }
                    is_known = true;
                })*
                match Self::decode_other(name, revision, bytes, context) {
                    Some(it) => Ok(it),
                    None if is_known => Err($crate::extensions::structure::Undecoded::Unsupported),
                    None => Err($crate::extensions::structure::Undecoded::Unknown),
                }
            }
        }

        impl std::fmt::Display for $enum<'_> {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                match self {
                    $(Self::$variant(it) => it.fmt(f),)*
                    _ => self.fmt_other(f),
                }
            }
        }

        $(impl<'a> From<$ty> for $enum<'a> {
            fn from(it: $ty) -> Self {
                Self::$variant(it)
            }
        })*
    };
}

pub(crate) use extensions;

#[cfg(test)]
mod tests {
    use crate::Family;
    use crate::extensions::set_indexes::SetIndexes;
    use crate::extensions::structure::{Context, Undecoded};
    use crate::matches::Match;
    use crate::targets::Target;

    #[test]
    fn an_unknown_name_differs_from_an_unsupported_value() {
        let sets = &SetIndexes::default();
        let family = Family::V4;
        let context = Context { family, sets };
        let one = |name, revision| Match::decode(name, revision, &[0; 8], context).err();
        assert_eq!(one("no_such_match", 0), Some(Undecoded::Unknown));
        assert_eq!(one("cpu", 1), Some(Undecoded::Unsupported));
        assert_eq!(one("cpu", 0), None);
        let target = |name, byte| Target::decode(name, 0, &[byte; 8], context).err();
        assert_eq!(target("NO_SUCH_TARGET", 0), Some(Undecoded::Unknown));
        assert_eq!(target("REJECT", 255), Some(Undecoded::Unsupported));
        assert_eq!(target("REJECT", 0), None);
    }
}
