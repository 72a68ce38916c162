//! Enumerations that the API stores as strings.

/// Declares a string enumeration. The first value is the default, also of an empty
/// string.
///
/// An unknown value is kept as `Other`.
macro_rules! string_enum {
    (
        $(#[$doc:meta])*
        $name:ident { $first:ident = $first_word:literal, $($variant:ident = $word:literal),+ $(,)? }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
        #[cfg_attr(
            feature = "serde",
            derive(serde::Serialize),
            serde(into = "String")
        )]
        pub enum $name {
            #[doc = concat!("`", $first_word, "`, the default.")]
            #[default]
            $first,
            $(
                #[doc = concat!("`", $word, "`.")]
                $variant,
            )+
            /// An unknown value.
            Other(Box<str>),
        }

        impl $name {
            /// Returns the value as text.
            pub fn as_str(&self) -> &str {
                match self {
                    Self::$first => $first_word,
                    $(Self::$variant => $word,)+
                    Self::Other(word) => word,
                }
            }
        }

        impl From<&str> for $name {
            fn from(word: &str) -> Self {
                match word {
                    "" | $first_word => Self::$first,
                    $($word => Self::$variant,)+
                    word => Self::Other(word.into()),
                }
            }
        }

        impl From<String> for $name {
            fn from(word: String) -> Self {
                Self::from(&*word)
            }
        }

        /// Deserializes a string without a copy of a known value.
        #[cfg(feature = "serde")]
        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct WordVisitor;

                impl serde::de::Visitor<'_> for WordVisitor {
                    type Value = $name;

                    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                        f.write_str("a string")
                    }

                    fn visit_str<E>(self, word: &str) -> Result<$name, E> {
                        Ok(word.into())
                    }
                }

                deserializer.deserialize_str(WordVisitor)
            }
        }

        impl From<$name> for String {
            fn from(word: $name) -> Self {
                word.as_str().into()
            }
        }
    };
}

pub(super) use string_enum;
