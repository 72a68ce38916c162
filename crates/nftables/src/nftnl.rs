//! A second way to the kernel: libnftnl makes the messages, libmnl sends them.
//!
//! The messages are those of [`Transaction::encode`], made by the library that
//! `nft` uses; tests compare the two.
//! A [`Client`](crate::Client) goes this way when it is opened with
//! [`Encoder::Nftnl`](crate::Encoder::Nftnl); it reads as any other does.
//!
//! libnftnl is licensed under the GPL, version 2 or later, and so is a program
//! that is linked with it.
//!
//! libnftnl does not support raw expressions
//! ([`Expr::Other`](crate::expr::Expr::Other)), values of more than 64 bytes,
//! and interval sets with more than 15 fields.
//! Such a transaction is rejected before anything is sent.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "IO file"
)]
#![allow(unsafe_code, reason = "the libraries are written in C")]

mod attributes;

mod exprs;

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

/// Encodes a transaction as one batch for the kernel, by libnftnl.
///
/// Does what [`Transaction::encode`] does; numbers and acknowledgements are the
/// same.
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

/// A kind of object of libnftnl.
trait Kind {
    /// What pointers to it point to.
    type Raw;

    /// Frees an object and all it owns.
    ///
    /// # Safety
    ///
    /// It was allocated by the library, and nobody else frees it.
    unsafe fn free(raw: *mut Self::Raw);

    /// Sets an attribute to a copy of `len` bytes.
    ///
    /// # Safety
    ///
    /// The object is alive, and the bytes are what the attribute takes.
    unsafe fn set(raw: *mut Self::Raw, attr: u16, data: *const c_void, len: u32) -> c_int;

    /// Appends the object to a message.
    ///
    /// # Safety
    ///
    /// Both are alive, and the message has room for what is appended.
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
                // SAFETY: the caller says so.
                unsafe { sys::$free(raw) }
            }

            unsafe fn set(raw: *mut Self::Raw, attr: u16, data: *const c_void, len: u32) -> c_int {
                // SAFETY: the caller says so.
                unsafe { sys::$set(raw, attr, data, len) }
            }

            unsafe fn build(message: *mut nlmsghdr, raw: *mut Self::Raw) {
                // SAFETY: the caller says so.
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
    /// An element, which becomes the member of a list.
    Element: nftnl_set_elem, nftnl_set_elem_free, nftnl_set_elem_set, build_member;
}

/// Expressions have one type in the library, and each has attributes of its own.
impl<E: ExprType> Kind for E {
    type Raw = sys::nftnl_expr;

    unsafe fn free(raw: *mut Self::Raw) {
        // SAFETY: the caller says so.
        unsafe { sys::nftnl_expr_free(raw) }
    }

    unsafe fn set(raw: *mut Self::Raw, attr: u16, data: *const c_void, len: u32) -> c_int {
        // SAFETY: the caller says so.
        unsafe { sys::nftnl_expr_set(raw, attr, data, len) }
    }

    unsafe fn build(message: *mut nlmsghdr, raw: *mut Self::Raw) {
        // SAFETY: the caller says so.
        unsafe { sys::nftnl_expr_build_payload(message, raw) }
    }
}

/// Appends an element as the member of a list.
///
/// # Safety
///
/// As for [`Kind::build`].
unsafe fn build_member(message: *mut nlmsghdr, raw: *mut sys::nftnl_set_elem) {
    const NFTA_LIST_ELEM: c_int = 1;
    // SAFETY: the caller says so; what is returned points into the message.
    unsafe { sys::nftnl_set_elem_nlmsg_build(message, raw, NFTA_LIST_ELEM) };
}

/// An object of libnftnl, freed when it is dropped.
///
/// Invariant: of a value and a verdict, which share room, one at most is set.
#[derive(Debug)]
struct Object<K: Kind> {
    raw: NonNull<K::Raw>,
    /// How many bytes it adds to a message, at most.
    room: usize,
}

/// The bytes of an object that has no attributes: nests and its name.
const BARE: usize = 64;
/// What encloses the value of an attribute: its header and nests around it.
const ENCLOSING: usize = 32;
/// What encloses one of the lengths of fields.
const ENCLOSING_BYTE: usize = 12;

impl<K: Kind> Object<K> {
    /// Owns what the library has allocated.
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

    /// Sets an attribute, unless the object has no room for so many bytes.
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
        // SAFETY: the object is ours and alive; the type of the attribute says
        // that it takes what `value` is: a number of its size, a text that ends
        // with NUL, or so many bytes at most. The library keeps a copy.
        let result = unsafe { K::set(self.raw.as_ptr(), attr, value.as_ptr().cast(), len) };
        if result < 0 {
            // The attribute exists, so nothing else can fail.
            out_of_memory();
        }
        self.room += ENCLOSING + value.len().next_multiple_of(4);
    }

    /// Takes an expression from its owner, for the function that makes it ours.
    fn adopt(&mut self, expr: AnyExpr) -> *mut sys::nftnl_expr {
        self.room += expr.room;
        let raw = expr.raw.as_ptr();
        std::mem::forget(expr);
        raw
    }
}

impl<K: Kind> Drop for Object<K> {
    fn drop(&mut self) {
        // SAFETY: the object is ours, and was not given away.
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
    /// Makes an expression without attributes, unless the library knows none
    /// of its name.
    fn new() -> Result<Self, Error> {
        let name = CString::new(E::NAME).unwrap_or_default();
        // SAFETY: the name ends with NUL; the library looks it up.
        let raw = unsafe { sys::nftnl_expr_alloc(name.as_ptr()) };
        if raw.is_null() {
            return Err(unsupported(format_args!("the expression {}", E::NAME)));
        }
        Ok(Self::own(raw))
    }

    /// Returns the expression as one of any kind.
    fn into_any(self) -> AnyExpr {
        let any = AnyExpr {
            raw: self.raw,
            room: self.room,
        };
        std::mem::forget(self);
        any
    }
}

/// An expression of whatever kind, to become part of an object.
#[derive(Debug)]
struct AnyExpr {
    raw: NonNull<sys::nftnl_expr>,
    room: usize,
}

impl Drop for AnyExpr {
    fn drop(&mut self) {
        // SAFETY: the expression is ours, and was not given away.
        unsafe { sys::nftnl_expr_free(self.raw.as_ptr()) }
    }
}

impl Object<Dynset> {
    /// Appends what each element does that this adds to a set.
    fn push(&mut self, expr: AnyExpr) {
        let raw = self.adopt(expr);
        // SAFETY: both are alive; from here on this one owns the other.
        unsafe {
            sys::nftnl_expr_add_expr(self.raw.as_ptr(), sys::NFTNL_EXPR_DYNSET_EXPRESSIONS, raw);
        }
    }
}

impl Object<Rule> {
    fn push(&mut self, expr: AnyExpr) {
        let raw = self.adopt(expr);
        // SAFETY: both are alive; from here on the rule owns the expression.
        unsafe { sys::nftnl_rule_add_expr(self.raw.as_ptr(), raw) }
    }
}

impl Object<Element> {
    fn push(&mut self, expr: AnyExpr) {
        let raw = self.adopt(expr);
        // SAFETY: both are alive; from here on the element owns the expression.
        unsafe { sys::nftnl_set_elem_add_expr(self.raw.as_ptr(), raw) }
    }
}

/// A message that the libraries append to.
#[derive(Debug)]
struct Message {
    /// Invariant: the first of them is the length in bytes, a multiple of four
    /// that the words have room for, once a header is there.
    words: Vec<u32>,
}

/// `struct nlmsghdr` and `struct nfgenmsg`
const HEADERS: usize = 16 + 4;

impl Message {
    /// Begins a message about nf_tables; `kind` is its number there.
    fn new(kind: u16, family: u8, flags: u16, sequence: u32) -> Self {
        let family = family.into();
        // SAFETY: there is room for the headers, which is all that is written.
        Self::begin(|room| unsafe {
            sys::nftnl_nlmsg_build_hdr(room, kind, family, flags, sequence)
        })
    }

    /// Begins the message that begins a batch.
    fn batch_begin(sequence: u32) -> Self {
        // SAFETY: there is room for the headers, which is all that is written.
        Self::begin(|room| unsafe { sys::nftnl_batch_begin(room, sequence) })
    }

    /// Begins the message that ends a batch.
    fn batch_end(sequence: u32) -> Self {
        // SAFETY: there is room for the headers, which is all that is written.
        Self::begin(|room| unsafe { sys::nftnl_batch_end(room, sequence) })
    }

    /// Gives `write` room for headers.
    fn begin(write: impl FnOnce(*mut c_char) -> *mut nlmsghdr) -> Self {
        let mut message = Self { words: Vec::new() };
        write(message.with_room(HEADERS).cast());
        message
    }

    /// Returns the length of the message in bytes.
    fn len(&self) -> usize {
        self.words.first().map_or(0, |len| *len as usize)
    }

    /// Makes room for so many bytes more, and returns where the message is.
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
        // SAFETY: both are alive, and there is room for the object; `set` and
        // `adopt` have counted what it becomes.
        unsafe { K::build(message, object.raw.as_ptr()) }
        debug_assert!(self.len() <= limit, "{} bytes, not {limit}", self.len());
    }

    /// Appends an attribute with bytes.
    fn put(&mut self, kind: u16, value: &[u8]) {
        let message = self.with_room(ENCLOSING + value.len().next_multiple_of(4));
        // SAFETY: there is room for the attribute, whose value is copied.
        unsafe { mnl_sys::mnl_attr_put(message, kind, value.len(), value.as_ptr().cast()) }
    }

    /// Appends an attribute that encloses those which `body` appends.
    fn nest(&mut self, kind: u16, body: impl FnOnce(&mut Self)) {
        let start = self.len();
        let message = self.with_room(ENCLOSING);
        // SAFETY: there is room for the header of an attribute.
        unsafe { mnl_sys::mnl_attr_nest_start(message, kind) };
        body(self);
        let message = self.with_room(0);
        // SAFETY: the attribute was begun here, within the words of the message,
        // which only grows.
        unsafe { mnl_sys::mnl_attr_nest_end(message, message.cast::<u8>().add(start).cast()) }
    }

    /// Returns the words of the message.
    fn words(&self) -> &[u32] {
        self.words.get(..self.len() / 4).unwrap_or_default()
    }
}

/// What libmnl sends by: it shares the socket of a client.
#[derive(Debug)]
pub(crate) struct Sender {
    socket: NonNull<mnl_sys::mnl_socket>,
}

// SAFETY: libmnl keeps nothing about threads, and sending changes nothing in it.
unsafe impl Send for Sender {}
// SAFETY: as above.
unsafe impl Sync for Sender {}

impl Sender {
    /// Shares an open socket.
    pub(crate) fn new(socket: BorrowedFd<'_>) -> Result<Self, Error> {
        let failed = |source| Error::Io {
            operation: "share a netlink socket with libmnl",
            source,
        };
        let shared = socket.try_clone_to_owned().map_err(failed)?;
        // SAFETY: the descriptor is open.
        let socket = unsafe { mnl_sys::mnl_socket_fdopen(shared.as_raw_fd()) };
        let socket = NonNull::new(socket).ok_or_else(|| failed(io::Error::last_os_error()))?;
        // From here on libmnl closes it.
        let _ = shared.into_raw_fd();
        Ok(Self { socket })
    }

    /// Sends bytes as one datagram, and tells how many they were.
    pub(crate) fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        // SAFETY: the socket is open, and as many bytes are read as there are.
        let sent = unsafe {
            mnl_sys::mnl_socket_sendto(self.socket.as_ptr(), bytes.as_ptr().cast(), bytes.len())
        };
        usize::try_from(sent).map_err(|_| io::Error::last_os_error())
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        // SAFETY: the socket is ours; with it goes the descriptor it was made of.
        unsafe { mnl_sys::mnl_socket_close(self.socket.as_ptr()) };
    }
}

/// Returns the error for a feature that libnftnl does not support.
fn unsupported(feature: impl std::fmt::Display) -> Error {
    Error::LibnftnlUnsupported {
        feature: feature.to_string().into(),
    }
}

/// Ends the program as any allocation that fails does.
fn out_of_memory() -> ! {
    handle_alloc_error(Layout::new::<[u8; BARE]>())
}
