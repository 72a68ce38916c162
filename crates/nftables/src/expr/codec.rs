//! The codec of one type of kernel expression, and of the attributes that several have.

use vipline_netlink::DecodeError;
use vipline_netlink::attr::{Attr, Attrs, put, put_str};

use crate::Name;

/// A kernel expression type: name and codec.
pub trait ExprType: Sized {
    /// The kernel's name of the expression.
    const NAME: &'static str;

    /// Appends the attributes.
    fn encode(&self, out: &mut Vec<u8>);

    /// Decodes the attributes.
    ///
    /// Returns `None` if attributes are missing or unknown: the caller then keeps
    /// the raw attributes.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] if an attribute is malformed.
    fn decode(attrs: Attrs<'_>) -> Result<Option<Self>, DecodeError>;
}

/// Appends a string attribute, if any.
pub(super) fn put_name(out: &mut Vec<u8>, kind: u16, name: Option<&Name>) {
    if let Some(name) = name {
        put_str(out, kind, name.as_str());
    }
}

/// Decodes a name.
pub(super) fn name(attr: &Attr<'_>) -> Result<Name, DecodeError> {
    Name::new(attr.str()?).map_err(|_| attr.error("name"))
}

/// Appends an attribute of one byte and its padding.
pub(super) fn put_byte(out: &mut Vec<u8>, kind: u16, value: u8) {
    put(out, kind, &[value]);
}
