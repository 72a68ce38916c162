//! An alternative encoder: libnftnl encodes transactions, libmnl sends them.
//!
//! libnftnl is the library of `nft`. Its messages are equivalent to those of
//! [`Transaction::encode`]; tests compare both.
//! A [`Client`](crate::Client) uses this encoder if it is opened with
//! [`Encoder::Nftnl`](crate::Encoder::Nftnl). Dumps do not use libnftnl.
//!
//! libnftnl is licensed under the GPL, version 2 or later, which applies to a
//! program linked with it.
//!
//! This encoder does not support raw expressions
//! ([`Expr::Other`](crate::expr::Expr::Other)), matches and targets of xtables,
//! values of more than 64 bytes, and interval sets with more than 15 fields.
//! Such a transaction is rejected before anything is sent.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "IO file"
)]
#![allow(unsafe_code, reason = "the libraries are written in C")]

mod attributes;

mod exprs;

mod loads;

mod actions;

mod objects;

mod batch;

use std::alloc::{Layout, handle_alloc_error};
use std::ffi::{CString, c_char, c_int, c_void};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, IntoRawFd};
use std::ptr::NonNull;

use mnl_sys::libc::nlmsghdr;
use nftnl_sys as sys;

use self::attributes::{Attr, Number, Short};
use crate::expr::{Dynset, ExprType};
use crate::{Batch, Error, Transaction};

/// Encodes a transaction as one batch with libnftnl.
///
/// Sequence numbers and ACK requests are the same as with
/// [`Transaction::encode`].
///
/// # Errors
///
/// [`Error::LibnftnlUnsupported`]: libnftnl does not support a part of the
/// transaction.
pub fn encode(
    transaction: &Transaction,
    sequence: u32,
    generation: Option<u32>,
) -> Result<Batch<'_>, Error> {
    batch::encode(transaction, sequence, generation)
}

/// A type of libnftnl object.
trait Kind {
    /// The C struct.
    type Raw;

    /// Frees an object and everything it owns.
    ///
    /// # Safety
    ///
    /// The library allocated the object, and no other code frees it.
    unsafe fn free(raw: *mut Self::Raw);

    /// Sets an attribute to a copy of `len` bytes.
    ///
    /// # Safety
    ///
    /// The object is alive, and `data` has the type that the attribute expects.
    unsafe fn set(raw: *mut Self::Raw, attr: u16, data: *const c_void, len: u32) -> c_int;

    /// Appends the object to a message.
    ///
    /// # Safety
    ///
    /// Message and object are alive, and the message has room for the object.
    unsafe fn build(message: *mut nlmsghdr, raw: *mut Self::Raw);
}

macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident: $raw:ident, $free:ident, $set:ident, $build:expr;)*) => {$(
        $(#[$doc])*
        #[derive(Debug)]
        enum $kind {}

        impl Kind for $kind {
            type Raw = sys::$raw;

            unsafe fn free(raw: *mut Self::Raw) {
                // SAFETY: guaranteed by the caller.
                unsafe { sys::$free(raw) }
            }

            unsafe fn set(raw: *mut Self::Raw, attr: u16, data: *const c_void, len: u32) -> c_int {
                // SAFETY: guaranteed by the caller.
                unsafe { sys::$set(raw, attr, data, len) }
            }

            unsafe fn build(message: *mut nlmsghdr, raw: *mut Self::Raw) {
                // SAFETY: guaranteed by the caller.
                unsafe { $build(message, raw) }
            }
        }
    )*};
}

kinds! {
    /// A table.
    Table: nftnl_table, nftnl_table_free, nftnl_table_set_data, sys::nftnl_table_nlmsg_build_payload;
    /// A chain without its rules.
    Chain: nftnl_chain, nftnl_chain_free, nftnl_chain_set_data, sys::nftnl_chain_nlmsg_build_payload;
    /// A rule.
    Rule: nftnl_rule, nftnl_rule_free, nftnl_rule_set_data, sys::nftnl_rule_nlmsg_build_payload;
    /// A set or map, without its elements.
    Set: nftnl_set, nftnl_set_free, nftnl_set_set_data, sys::nftnl_set_nlmsg_build_payload;
    /// An element; encoded as a list entry.
    Element: nftnl_set_elem, nftnl_set_elem_free, nftnl_set_elem_set, build_member;
}

/// libnftnl has one type for all expressions, with attributes for each.
impl<E: ExprType> Kind for E {
    type Raw = sys::nftnl_expr;

    unsafe fn free(raw: *mut Self::Raw) {
        // SAFETY: guaranteed by the caller.
        unsafe { sys::nftnl_expr_free(raw) }
    }

    unsafe fn set(raw: *mut Self::Raw, attr: u16, data: *const c_void, len: u32) -> c_int {
        // SAFETY: guaranteed by the caller.
        unsafe { sys::nftnl_expr_set(raw, attr, data, len) }
    }

    unsafe fn build(message: *mut nlmsghdr, raw: *mut Self::Raw) {
        // SAFETY: guaranteed by the caller.
        unsafe { sys::nftnl_expr_build_payload(message, raw) }
    }
}

/// Appends an element as a list entry.
///
/// # Safety
///
/// As for [`Kind::build`].
unsafe fn build_member(message: *mut nlmsghdr, raw: *mut sys::nftnl_set_elem) {
    const NFTA_LIST_ELEM: c_int = 1;
    // SAFETY: guaranteed by the caller. The result points into the message.
    unsafe { sys::nftnl_set_elem_nlmsg_build(message, raw, NFTA_LIST_ELEM) };
}

/// A libnftnl object, freed on drop.
///
/// Invariant: at most one of value and verdict is set; they share memory.
#[derive(Debug)]
struct Object<K: Kind> {
    raw: NonNull<K::Raw>,
    /// Upper bound of the encoded length in bytes.
    room: usize,
}

/// Upper bound of the length of an object without attributes: nests and name.
const BARE: usize = 64;
/// Upper bound of the overhead of an attribute: its header and nests.
const ENCLOSING: usize = 32;
/// Overhead of one entry of a list of field lengths.
const ENCLOSING_BYTE: usize = 12;

impl<K: Kind> Object<K> {
    /// Takes ownership of an allocated object.
    fn own(raw: *mut K::Raw) -> Self {
        let raw = NonNull::new(raw).unwrap_or_else(|| out_of_memory());
        Self { raw, room: BARE }
    }

    fn number<N: Number>(&mut self, attr: Attr<K, N>, value: N) {
        self.set(attr.number(), value.bytes().as_ref());
    }

    fn text(&mut self, attr: Attr<K, str>, value: &str) {
        let text = CString::new(value).unwrap_or_default();
        self.set(attr.number(), text.as_bytes_with_nul());
    }

    fn opaque(&mut self, attr: Attr<K, [u8]>, value: &[u8]) {
        self.set(attr.number(), value);
    }

    /// Sets an attribute of at most `MAX` bytes.
    fn short<const MAX: usize>(
        &mut self,
        attr: Attr<K, Short<MAX>>,
        value: &[u8],
    ) -> Result<(), Error> {
        if value.len() > MAX {
            return Err(unsupported(format_args!(
                "an attribute of {} bytes (limit: {MAX})",
                value.len()
            )));
        }
        self.set(attr.number(), value);
        self.room += value.len() * ENCLOSING_BYTE;
        Ok(())
    }

    fn set(&mut self, attr: u16, value: &[u8]) {
        let len = u32::try_from(value.len()).unwrap_or(u32::MAX);
        // SAFETY: the object is owned and alive. The type of the attribute
        // guarantees that `value` fits: an integer of its size, a string with
        // NUL, or at most the given number of bytes. The library copies it.
        let result = unsafe { K::set(self.raw.as_ptr(), attr, value.as_ptr().cast(), len) };
        if result < 0 {
            // The attribute exists, so the only possible failure is allocation.
            out_of_memory();
        }
        self.room += ENCLOSING + value.len().next_multiple_of(4);
    }

    /// Releases ownership of an expression, for a function that takes ownership.
    fn adopt(&mut self, expr: AnyExpr) -> *mut sys::nftnl_expr {
        self.room += expr.room;
        let raw = expr.raw.as_ptr();
        std::mem::forget(expr);
        raw
    }
}

impl<K: Kind> Drop for Object<K> {
    fn drop(&mut self) {
        // SAFETY: the object is still owned.
        unsafe { K::free(self.raw.as_ptr()) }
    }
}

macro_rules! constructors {
    ($($kind:ident: $alloc:ident;)*) => {$(
        impl Object<$kind> {
            fn new() -> Self {
                // SAFETY: allocates an object without attributes, or returns NULL.
                Self::own(unsafe { sys::$alloc() })
            }
        }
    )*};
}

constructors! {
    Table: nftnl_table_alloc;
    Chain: nftnl_chain_alloc;
    Rule: nftnl_rule_alloc;
    Set: nftnl_set_alloc;
    Element: nftnl_set_elem_alloc;
}

impl<E: ExprType> Object<E> {
    /// Creates an expression without attributes. Fails if the library does not
    /// support the expression.
    fn new() -> Result<Self, Error> {
        let name = CString::new(E::NAME).unwrap_or_default();
        // SAFETY: the name ends with NUL.
        let raw = unsafe { sys::nftnl_expr_alloc(name.as_ptr()) };
        if raw.is_null() {
            return Err(unsupported(format_args!("the expression {}", E::NAME)));
        }
        Ok(Self::own(raw))
    }

    /// Erases the type of the expression.
    fn into_any(self) -> AnyExpr {
        let any = AnyExpr {
            raw: self.raw,
            room: self.room,
        };
        std::mem::forget(self);
        any
    }
}

/// An expression of any type.
#[derive(Debug)]
struct AnyExpr {
    raw: NonNull<sys::nftnl_expr>,
    room: usize,
}

impl Drop for AnyExpr {
    fn drop(&mut self) {
        // SAFETY: the expression is still owned.
        unsafe { sys::nftnl_expr_free(self.raw.as_ptr()) }
    }
}

impl Object<Dynset> {
    /// Adds a stateful expression for new elements.
    fn push(&mut self, expr: AnyExpr) {
        let raw = self.adopt(expr);
        // SAFETY: both are alive. This expression takes ownership of the other.
        unsafe {
            sys::nftnl_expr_add_expr(self.raw.as_ptr(), sys::NFTNL_EXPR_DYNSET_EXPRESSIONS, raw);
        }
    }
}

impl Object<Rule> {
    fn push(&mut self, expr: AnyExpr) {
        let raw = self.adopt(expr);
        // SAFETY: both are alive. The rule takes ownership of the expression.
        unsafe { sys::nftnl_rule_add_expr(self.raw.as_ptr(), raw) }
    }
}

impl Object<Element> {
    fn push(&mut self, expr: AnyExpr) {
        let raw = self.adopt(expr);
        // SAFETY: both are alive. The element takes ownership of the expression.
        unsafe { sys::nftnl_set_elem_add_expr(self.raw.as_ptr(), raw) }
    }
}

/// A netlink message under construction.
#[derive(Debug)]
struct Message {
    /// Invariant, once the header is written: the first word is the message length
    /// in bytes, a multiple of four that does not exceed the words.
    words: Vec<u32>,
}

/// `struct nlmsghdr` and `struct nfgenmsg`
const HEADERS: usize = 16 + 4;

impl Message {
    /// Begins an nf_tables message of type `kind`.
    fn new(kind: u16, family: u8, flags: u16, sequence: u32) -> Self {
        let family = family.into();
        // SAFETY: there is room for the headers; nothing else is written.
        Self::begin(|room| unsafe {
            sys::nftnl_nlmsg_build_hdr(room, kind, family, flags, sequence)
        })
    }

    /// Begins the begin message of a batch.
    fn batch_begin(sequence: u32) -> Self {
        // SAFETY: there is room for the headers; nothing else is written.
        Self::begin(|room| unsafe { sys::nftnl_batch_begin(room, sequence) })
    }

    /// Begins the end message of a batch.
    fn batch_end(sequence: u32) -> Self {
        // SAFETY: there is room for the headers; nothing else is written.
        Self::begin(|room| unsafe { sys::nftnl_batch_end(room, sequence) })
    }

    /// Reserves room for the headers and calls `write`.
    fn begin(write: impl FnOnce(*mut c_char) -> *mut nlmsghdr) -> Self {
        let mut message = Self { words: Vec::new() };
        write(message.with_room(HEADERS).cast());
        message
    }

    /// Returns the length of the message in bytes.
    fn len(&self) -> usize {
        self.words.first().map_or(0, |len| *len as usize)
    }

    /// Reserves room for `bytes` more bytes and returns the message.
    fn with_room(&mut self, bytes: usize) -> *mut nlmsghdr {
        let words = (self.len() + bytes).div_ceil(4);
        if self.words.len() < words {
            self.words.resize(words.next_power_of_two(), 0);
        }
        self.words.as_mut_ptr().cast()
    }

    /// Appends an object.
    fn push<K: Kind>(&mut self, object: &Object<K>) {
        let limit = self.len() + object.room;
        let message = self.with_room(object.room);
        // SAFETY: both are alive, and there is room for the object: `set` and
        // `adopt` have counted its length.
        unsafe { K::build(message, object.raw.as_ptr()) }
        debug_assert!(self.len() <= limit, "{} bytes, not {limit}", self.len());
    }

    /// Appends an attribute.
    fn put(&mut self, kind: u16, value: &[u8]) {
        let message = self.with_room(ENCLOSING + value.len().next_multiple_of(4));
        // SAFETY: there is room for the attribute. The value is copied.
        unsafe { mnl_sys::mnl_attr_put(message, kind, value.len(), value.as_ptr().cast()) }
    }

    /// Appends a nested attribute with the attributes that `body` appends.
    fn nest(&mut self, kind: u16, body: impl FnOnce(&mut Self)) {
        let start = self.len();
        let message = self.with_room(ENCLOSING);
        // SAFETY: there is room for an attribute header.
        unsafe { mnl_sys::mnl_attr_nest_start(message, kind) };
        body(self);
        let message = self.with_room(0);
        // SAFETY: the attribute starts at `start`, within the words of the
        // message, which never shrinks.
        unsafe { mnl_sys::mnl_attr_nest_end(message, message.cast::<u8>().add(start).cast()) }
    }

    /// Returns the words of the message.
    fn words(&self) -> &[u32] {
        self.words.get(..self.len() / 4).unwrap_or_default()
    }
}

/// A libmnl socket that shares the socket of a client.
#[derive(Debug)]
pub(crate) struct Sender {
    socket: NonNull<mnl_sys::mnl_socket>,
}

// SAFETY: libmnl has no thread-local state, and sending does not modify it.
unsafe impl Send for Sender {}
// SAFETY: as above.
unsafe impl Sync for Sender {}

impl Sender {
    /// Shares an open socket.
    pub(crate) fn new(socket: BorrowedFd<'_>) -> Result<Self, Error> {
        let failed = |source| vipline_netlink::Error::Io {
            operation: "share a netlink socket with libmnl",
            source,
        };
        let shared = socket.try_clone_to_owned().map_err(failed)?;
        // SAFETY: the descriptor is open.
        let socket = unsafe { mnl_sys::mnl_socket_fdopen(shared.as_raw_fd()) };
        let socket = NonNull::new(socket).ok_or_else(|| failed(io::Error::last_os_error()))?;
        // libmnl now owns the descriptor and closes it.
        let _ = shared.into_raw_fd();
        Ok(Self { socket })
    }

    /// Sends bytes as one datagram. Returns the number of bytes sent.
    pub(crate) fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        // SAFETY: the socket is open, and the length is that of the slice.
        let sent = unsafe {
            mnl_sys::mnl_socket_sendto(self.socket.as_ptr(), bytes.as_ptr().cast(), bytes.len())
        };
        usize::try_from(sent).map_err(|_| io::Error::last_os_error())
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        // SAFETY: the socket is owned. This also closes the descriptor.
        unsafe { mnl_sys::mnl_socket_close(self.socket.as_ptr()) };
    }
}

/// Returns the error for a feature that libnftnl does not support.
fn unsupported(feature: impl std::fmt::Display) -> Error {
    Error::LibnftnlUnsupported {
        feature: feature.to_string().into(),
    }
}

/// Aborts like any failed allocation.
fn out_of_memory() -> ! {
    handle_alloc_error(Layout::new::<[u8; BARE]>())
}
