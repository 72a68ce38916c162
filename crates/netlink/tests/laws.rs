//! Properties of the encoding and decoding of attributes, messages and malformed bytes.
#![allow(clippy::unwrap_used, reason = "a test")]

use proptest::prelude::*;
use vipline_netlink::attr::{Attrs, nest, put};
use vipline_netlink::message::{Messages, begin, end};

/// An attribute with bytes or with nested attributes.
#[derive(Clone, Debug, PartialEq)]
enum Tree {
    Leaf(u16, Vec<u8>),
    Nest(u16, Vec<Self>),
}

fn trees() -> impl Strategy<Value = Vec<Tree>> {
    let leaf = (0..0x4000_u16, prop::collection::vec(any::<u8>(), 0..20))
        .prop_map(|(kind, value)| Tree::Leaf(kind, value));
    let tree = leaf.prop_recursive(4, 40, 6, |inner| {
        (0..0x4000_u16, prop::collection::vec(inner, 0..6))
            .prop_map(|(kind, inner)| Tree::Nest(kind, inner))
    });
    prop::collection::vec(tree, 0..6)
}

fn write(out: &mut Vec<u8>, trees: &[Tree]) {
    for tree in trees {
        match tree {
            Tree::Leaf(kind, value) => put(out, *kind, value),
            Tree::Nest(kind, inner) => nest(out, *kind, |out| write(out, inner)),
        }
    }
}

/// Decodes trees of a known shape: bytes do not distinguish nested attributes.
fn read(attrs: Attrs<'_>, shape: &[Tree]) -> Vec<Tree> {
    attrs
        .zip(shape)
        .map(|(attr, shape)| {
            let attr = attr.unwrap();
            match shape {
                Tree::Leaf(..) => Tree::Leaf(attr.kind, attr.value.to_vec()),
                Tree::Nest(_, inner) => Tree::Nest(attr.kind, read(attr.attrs(), inner)),
            }
        })
        .collect()
}

/// Decodes all attributes up to a depth, and returns their number.
fn read_all(attrs: Attrs<'_>, depth: usize) -> usize {
    attrs
        .flatten()
        .map(|attr| {
            let _ = (attr.u8(), attr.u16(), attr.u32(), attr.u64());
            let _ = (attr.be16(), attr.be32(), attr.be64(), attr.str());
            let inner = match depth {
                0 => 0,
                depth => read_all(attr.attrs(), depth - 1),
            };
            1 + inner
        })
        .sum()
}

proptest! {
    #[test]
    fn attributes_round_trip(trees in trees()) {
        let mut out = Vec::new();
        write(&mut out, &trees);
        prop_assert_eq!(out.len() % 4, 0);
        prop_assert_eq!(Attrs::new(&out).count(), trees.len());
        prop_assert_eq!(read(Attrs::new(&out), &trees), trees);
    }

    #[test]
    fn messages_round_trip(
        messages in prop::collection::vec(
            (16_u16.., any::<u16>(), any::<u32>(), prop::collection::vec(any::<u8>(), 0..40)),
            0..8,
        ),
    ) {
        let mut out = Vec::new();
        for (ty, flags, seq, payload) in &messages {
            let start = begin(&mut out, *ty, *flags, *seq);
            out.extend_from_slice(payload);
            end(&mut out, start);
        }
        let read: Vec<_> = Messages::new(&out)
            .map(|message| {
                let message = message.unwrap();
                (message.ty, message.flags, message.seq, message.payload.to_vec())
            })
            .collect();
        prop_assert_eq!(read, messages);
    }

    #[test]
    fn decoding_any_bytes_terminates_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        prop_assert!(Messages::new(&bytes).count() <= bytes.len() / 16 + 1);
        for message in Messages::new(&bytes).flatten() {
            let _ = message.content();
        }
        prop_assert!(read_all(Attrs::new(&bytes), 0) <= bytes.len() / 4 + 1);
        read_all(Attrs::new(&bytes), 3);
    }

    #[test]
    fn decoding_any_acknowledgment_does_not_panic(
        ty in 1_u16..5,
        flags in any::<u16>(),
        trees in trees(),
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
    ) {
        let mut out = Vec::new();
        let start = begin(&mut out, ty, flags, 1);
        out.extend_from_slice(&(-22_i32).to_ne_bytes());
        let echo = begin(&mut out, 16, 5, 1);
        end(&mut out, echo);
        write(&mut out, &trees);
        end(&mut out, start);
        for (place, byte) in flips {
            let place = place.index(out.len());
            out[place] ^= byte;
        }
        for message in Messages::new(&out).flatten() {
            let _ = message.content();
        }
    }
}
