//! Compilation of nft expressions to kernel expressions, with register allocation.
//!
//! The kernel has no expressions with operands, but a machine with 16 words of 4 bytes:
//! `tcp dport 22` is "load 2 bytes of the transport header at offset 2 into word 0" and "compare
//! word 0 with 0016". This file turns the tree of an [`Expression`] into such a list.
//!
//! ```text
//! ip daddr . tcp dport @web      payload  4 bytes at network header + 16   => word 0
//!                                payload  2 bytes at transport header + 2  => word 1
//!                                lookup   word 0, 8 bytes                  in set web
//! ```
//!
//! Registers are allocated as in nft 1.0.6: a concatenation gets the words it requires, any other
//! value four. The kernel accepts other choices as well. But then a rule that this crate wrote
//! and one that nft wrote would differ although they mean the same, and a diff of the two would
//! rewrite the rule at each sync. For the same reason conversions of byte order are those that
//! nft makes, also where a value needs none.

use crate::expr::{
    Access, Bitwise, BitwiseOp, Byteorder, ByteorderOp, Ct, Expr, Fib, Hash, HashType, Immediate,
    Lookup, Meta, Numgen, Payload, PayloadAccess, PayloadBase, Register,
};
use crate::expression::{Expression, Term};
use crate::language::header::{Checksum, Layer};
use crate::language::invalid::Reason;
use crate::value::ByteOrder;
use crate::{Bytes, Data, Datatype, Family, InvalidValue};

/// Number of register words that nft allocates for a value that is no concatenation, however short
/// it is: the 16 bytes of `NFT_REG_SIZE`, into which an IPv6 address fits.
pub(crate) const SINGLE: u8 = 4;

/// The protocols of a packet, if known.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Protocols {
    pub(crate) network: Option<Family>,
    /// Number of the IP protocol, as in `meta l4proto`.
    pub(crate) transport: Option<u8>,
}

impl Protocols {
    /// Adds what `other` knows. Where both know a protocol, the first one stays: a statement about
    /// fields of two protocols gets the test of the first.
    pub(crate) fn with(self, other: Self) -> Self {
        Self {
            network: self.network.or(other.network),
            transport: self.transport.or(other.transport),
        }
    }
}

/// Compiles nft expressions to kernel expressions and allocates registers.
#[derive(Default)]
pub(crate) struct Lower {
    pub(crate) exprs: Vec<Expr>,
    /// What the loaded fields require of a packet. The caller puts the comparisons in front
    /// (`meta l4proto tcp` before `tcp dport`): the kernel loads bytes at an offset, whatever the
    /// protocol is, and a UDP port would match a rule about TCP.
    pub(crate) requires: Protocols,
    /// The reason why the statement cannot be compiled.
    pub(crate) invalid: Option<InvalidValue>,
    /// First unused register word.
    pub(crate) next: u8,
    /// Whether concatenated integers must be in network byte order: the key is looked up among
    /// intervals, which the kernel compares bytewise, and only in this order bytes sort as numbers.
    pub(crate) intervals: bool,
}

impl Lower {
    pub(crate) fn push(&mut self, expr: impl Into<Expr>) {
        self.exprs.push(expr.into());
    }

    /// Loads a value into newly allocated words and returns the first.
    pub(crate) fn value<T>(&mut self, expression: &Expression<T>) -> Register {
        let at = self.next;
        self.next += match &expression.0 {
            Term::Concat(_) => expression.words(),
            // The key is loaded where the result goes, and may be a long concatenation.
            Term::Map { of, .. } => of.words().max(SINGLE),
            _ => SINGLE,
        };
        self.load(expression, at);
        Register::word(at)
    }

    /// Loads a constant into newly allocated words and returns the first.
    pub(crate) fn constant(&mut self, bytes: Bytes) -> Register {
        self.value(&Expression::of(Term::Constant(bytes)))
    }

    /// Loads a value into the words that start at `at`.
    pub(crate) fn load<T>(&mut self, expression: &Expression<T>, at: u8) {
        self.requires = self.requires.with(expression.requires());
        let destination = Register::word(at);
        let access = Access::Load(destination);
        match &expression.0 {
            Term::Header(field) => {
                self.load_payload(field.base, field.offset, field.bytes.into(), destination);
            }
            Term::Payload { base, offset, len } => {
                self.load_payload(*base, *offset, *len, destination);
            }
            Term::Meta(key) => self.push(Meta { key: *key, access }),
            Term::Ct(key, direction) => {
                self.push(Ct {
                    key: *key,
                    direction: *direction,
                    access,
                });
            }
            Term::Load(load) => self.exprs.extend(load.expr(destination)),
            Term::Fib(flags, result) => {
                self.push(Fib {
                    flags: *flags,
                    result: *result,
                    destination,
                });
            }
            Term::Numgen { .. } | Term::Jenkins { .. } | Term::Symmetric { .. } => {
                self.load_number(expression, destination);
            }
            Term::Bits { .. } | Term::Shift { .. } => self.load_bits(expression, at),
            Term::Map { of, set, .. } => {
                // As in nft, the result replaces the key in its words.
                self.load(of, at);
                let (set, source) = (set.clone(), destination);
                self.push(Lookup {
                    set,
                    source,
                    destination: Some(destination),
                    invert: false,
                });
            }
            Term::Concat(parts) => {
                let mut at = at;
                for part in parts {
                    self.load(part, at);
                    if self.intervals {
                        self.convert_field(at, part);
                    }
                    // Each field begins at a word, as in the keys of sets.
                    at += part.words();
                }
            }
            Term::Constant(bytes) => {
                self.push(Immediate {
                    destination,
                    data: Data::Value(bytes.clone()),
                });
            }
            // Returned by the constructor of the rule, which is the first function that can fail.
            Term::Invalid(invalid) => self.invalid = Some((**invalid).clone()),
            // Only the text of rules has these terms, for fields within a byte and for registers
            // whose value it does not know. No constructor of a statement makes them.
            Term::BitField(_) | Term::Port(..) | Term::Unknown => {}
        }
    }

    /// Loads a value and performs a bitwise operation on it.
    fn load_bits<T>(&mut self, expression: &Expression<T>, at: u8) {
        let (of, op) = match &expression.0 {
            Term::Bits { of, mask, xor } => {
                let (mask, xor) = (mask.clone(), xor.clone());
                (of, BitwiseOp::MaskXor { mask, xor })
            }
            Term::Shift { of, left, bits } => {
                // In host order, unlike other numbers in messages: the kernel takes the operand for
                // the content of a register (`nft_bitwise_init_shift`).
                let by = Bytes::from(bits.to_ne_bytes());
                let op = if *left {
                    BitwiseOp::ShiftLeft(by)
                } else {
                    BitwiseOp::ShiftRight(by)
                };
                (of, op)
            }
            // `load` calls this for the two terms above.
            _ => return,
        };
        self.load(of, at);
        self.push(Bitwise {
            source: Register::word(at),
            destination: Register::word(at),
            len: of.bytes().into(),
            op,
        });
    }

    /// Loads a generated number or a hash.
    fn load_number<T>(&mut self, expression: &Expression<T>, destination: Register) {
        match &expression.0 {
            Term::Numgen {
                mode,
                modulus,
                offset,
            } => {
                let (mode, modulus, offset) = (*mode, *modulus, *offset);
                self.push(Numgen {
                    mode,
                    modulus,
                    offset,
                    destination,
                });
            }
            Term::Jenkins {
                of,
                modulus,
                seed,
                offset,
            } => {
                // The hash reads its input before it writes its result, so both may have the
                // same words, as in nft.
                let before = self.next;
                let source = self.value(of);
                self.next = before;
                let kind = HashType::Jenkins {
                    source,
                    len: of.bytes().into(),
                    seed: *seed,
                };
                let (modulus, offset) = (*modulus, *offset);
                self.push(Hash {
                    kind,
                    modulus,
                    offset,
                    destination,
                });
            }
            // Has no operand: the kernel hashes addresses and ports of the packet.
            Term::Symmetric { modulus, offset } => {
                let (modulus, offset) = (*modulus, *offset);
                self.push(Hash {
                    kind: HashType::Symmetric,
                    modulus,
                    offset,
                    destination,
                });
            }
            // `load` calls this for the three terms above.
            _ => {}
        }
    }

    fn load_payload(&mut self, base: PayloadBase, offset: u32, len: u32, destination: Register) {
        let access = PayloadAccess::Load(destination);
        self.push(Payload {
            base,
            offset,
            len,
            access,
        });
    }

    /// Loads the operand of a prefix match into word 0 and returns the bytes to compare with.
    ///
    /// A prefix of whole bytes of a header field loads these bytes only: `ip daddr 10.0.0.0/8`
    /// loads one byte, as in nft, and needs no mask. Length 0 is no such prefix, for nft neither:
    /// there is no load of no bytes.
    ///
    /// Call it first: no other words may be in use.
    pub(crate) fn load_prefix(
        &mut self,
        expression: &Expression,
        len: usize,
        first: Bytes,
    ) -> Bytes {
        if let (Term::Header(field), 0, 1..) = (&expression.0, len % 8, len) {
            self.requires = self.requires.with(expression.requires());
            let bytes = u32::try_from(len / 8).unwrap_or(u32::MAX);
            self.load_payload(field.base, field.offset, bytes, Register::word(0));
            return first.get(..len / 8).unwrap_or(&first).into();
        }
        let mut mask = Bytes::repeat(0, first.len());
        for (at, byte) in mask.as_mut_slice().iter_mut().enumerate() {
            // In 16 bits, because 8 bits cannot be shifted by 8.
            let ones = len.saturating_sub(at * 8).min(8);
            *byte = !(0xff_u16 >> ones) as u8;
        }
        let none = Bytes::repeat(0, first.len());
        self.value(&expression.clone().with_bits(mask, none));
        first
    }

    /// Converts the integer at word `at` to network byte order, if it has another one.
    ///
    /// The kernel converts units of 2, 4 and 8 bytes. Values of other lengths are names or
    /// single bytes, which have no byte order.
    pub(crate) fn convert_to_network_order<T>(&mut self, at: u8, expression: &Expression<T>) {
        let bytes = expression.bytes();
        if expression.order() == ByteOrder::Host && matches!(bytes, 2 | 4 | 8) {
            self.push_byteorder(at, ByteorderOp::ToNetwork, bytes.into(), bytes.into());
        }
    }

    /// Converts the integer at word `at` to host byte order, if it has another one. Sizes are
    /// limited as in [`convert_to_network_order`](Self::convert_to_network_order).
    pub(crate) fn convert_to_host_order(&mut self, at: u8, expression: &Expression) {
        let bytes = expression.bytes();
        if expression.order() == ByteOrder::Big && matches!(bytes, 2 | 4 | 8) {
            self.push_byteorder(at, ByteorderOp::ToHost, bytes.into(), bytes.into());
        }
    }

    /// Converts one field of a concatenation to network byte order, as nft does.
    fn convert_field(&mut self, at: u8, expression: &Expression) {
        let bytes: u32 = expression.bytes().into();
        // Names are compared from their first byte in any case.
        let number = !matches!(expression.datatype(), Datatype::Ifname | Datatype::String);
        let is_header = matches!(expression.0, Term::Header(_) | Term::Payload { .. });
        let is_host = expression.order() == ByteOrder::Host
            || expression.datatype() == Datatype::InetProto && !is_header;
        // A single byte has no byte order; Linux 6.12.117 rejects its conversion.
        if is_host && number && bytes > 1 {
            let size = if bytes.is_multiple_of(4) { 4 } else { 2 };
            self.push_byteorder(at, ByteorderOp::ToNetwork, bytes, size);
        }
    }

    fn push_byteorder(&mut self, at: u8, op: ByteorderOp, len: u32, size: u32) {
        let source = Register::word(at);
        self.push(Byteorder {
            source,
            destination: source,
            op,
            len,
            size,
        });
    }

    /// Stores a register to packet metadata, conntrack, an option or bytes of the packet.
    pub(crate) fn store(&mut self, to: &Expression, source: Register) -> Result<(), Reason> {
        let access = Access::Store(source);
        match &to.0 {
            Term::Meta(key) => self.push(Meta { key: *key, access }),
            Term::Ct(key, direction) => {
                self.push(Ct {
                    key: *key,
                    direction: *direction,
                    access,
                });
            }
            Term::Load(load) => {
                let store = load.store(source).ok_or(Reason::NotAssignable)?;
                self.push(store);
            }
            Term::Header(field) => {
                self.requires = self.requires.with(to.requires());
                let checksum = field.checksum().ok_or(Reason::UnknownChecksum)?;
                let (base, offset, len) = (field.base, field.offset, field.bytes.into());
                self.store_payload(base, offset, len, source, checksum);
            }
            // Which header the bytes are in is unknown, and so is its checksum. nft updates none
            // either.
            Term::Payload { base, offset, len } => {
                self.store_payload(*base, *offset, *len, source, Checksum::default());
            }
            _ => return Err(Reason::NotAssignable),
        }
        Ok(())
    }

    /// Stores a field with an odd number of bytes, if its header has a checksum. Returns false
    /// for all other fields.
    ///
    /// The checksum is one of 16-bit words, and the kernel updates it by the difference of the
    /// stored bytes (`nft_payload_csum_inet`), as if they began at a word. So the field is
    /// stored with the byte that shares its word, as nft does: `ip ttl set 64` loads TTL and
    /// protocol, replaces the former, and stores both.
    pub(crate) fn store_in_words(
        &mut self,
        to: &Expression,
        value: &Expression,
    ) -> Result<bool, Reason> {
        let Term::Header(field) = &to.0 else {
            return Ok(false);
        };
        let checksum = field.checksum().ok_or(Reason::UnknownChecksum)?;
        if checksum.kind == 0 || field.bytes.is_multiple_of(2) {
            return Ok(false);
        }
        // Any other value would have to be moved beside the neighbor first.
        let Term::Constant(bytes) = &value.0 else {
            return Err(Reason::NotConstant);
        };
        // Begin of the word. Where the mask is 0, the value replaces what was there; where it is
        // ff, the neighbor stays.
        let offset = field.offset & !1;
        let (mut mask, mut xor) = (Bytes::repeat(0, bytes.len()), bytes.clone());
        if offset == field.offset {
            mask.extend(&[0xff]);
            xor.extend(&[0]);
        } else {
            mask = Bytes::from([0xff]);
            mask.extend(&Bytes::repeat(0, bytes.len()));
            xor = Bytes::from([0]);
            xor.extend(bytes);
        }
        let len = u32::from(field.bytes) + 1;
        self.requires = self.requires.with(to.requires());
        let word = Register::word(0);
        self.load_payload(field.base, offset, len, word);
        self.push(Bitwise {
            source: word,
            destination: word,
            len,
            op: BitwiseOp::MaskXor { mask, xor },
        });
        self.store_payload(field.base, offset, len, word, checksum);
        Ok(true)
    }

    fn store_payload(
        &mut self,
        base: PayloadBase,
        offset: u32,
        len: u32,
        source: Register,
        checksum: Checksum,
    ) {
        let access = PayloadAccess::Store {
            source,
            checksum: checksum.kind,
            checksum_offset: checksum.offset,
            checksum_flags: checksum.flags,
        };
        self.push(Payload {
            base,
            offset,
            len,
            access,
        });
    }
}

impl<T> Expression<T> {
    /// Returns the protocols that the packet must have. Of another packet the kernel would load
    /// whatever stands at the offset.
    fn requires(&self) -> Protocols {
        match &self.0 {
            Term::Header(field) => match field.layer {
                // The type in a VLAN header has a name only in texts (`text/context.rs`).
                Layer::Any | Layer::Vlan => Protocols::default(),
                Layer::Network(family) => Protocols {
                    network: Some(family),
                    transport: None,
                },
                Layer::Transport(proto) => Protocols {
                    network: None,
                    transport: Some(proto),
                },
            },
            // No transport protocol, also for TCP options: the kernel looks for them in TCP packets
            // only (`nft_tcp_header_pointer`).
            Term::Load(load) => Protocols {
                network: load.family(),
                transport: None,
            },
            Term::Jenkins { of, .. }
            | Term::Bits { of, .. }
            | Term::Shift { of, .. }
            | Term::Map { of, .. } => of.requires(),
            Term::Concat(parts) => parts.iter().fold(Protocols::default(), |known, part| {
                known.with(part.requires())
            }),
            // Constants, what every packet has, and bytes of a header that nobody named.
            _ => Protocols::default(),
        }
    }
}
