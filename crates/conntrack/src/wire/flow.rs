//! Encoding and decoding of flows.

use vipline_netlink::DecodeError;
use vipline_netlink::attr::{Attr, Attrs, nest, put, put_be16, put_be32, put_be64, put_str};

use super::{
    COUNTERS_ORIGINAL, COUNTERS_REPLY, HELP, ID, LABELS, MARK, PROTOCOL_INFO, SECURITY,
    SEQ_ADJ_ORIGINAL, SEQ_ADJ_REPLY, STATUS, SYNPROXY, TIMEOUT, TIMESTAMP, TUPLE_MASTER,
    TUPLE_ORIGINAL, TUPLE_REPLY, USE, ZONE, attributes, put_header,
};
use crate::{
    Counters, Extension, Flow, Labels, Other, SeqAdj, State, Status, Synproxy, Timestamps, Tuple,
};

impl Flow {
    /// Decodes the payload of a message with a flow.
    ///
    /// # Errors
    ///
    /// The payload is malformed or lacks a tuple.
    pub fn decode(payload: &[u8]) -> Result<Self, DecodeError> {
        let attributes = attributes(payload)?;
        let (mut original, mut reply) = (None, None);
        for attr in Attrs::new(attributes) {
            let attr = attr?;
            match attr.kind {
                TUPLE_ORIGINAL => original = Some(Tuple::decode(attr)?),
                TUPLE_REPLY => reply = Some(Tuple::decode(attr)?),
                _ => {}
            }
            // The kernel sends the tuples first.
            if original.is_some() && reply.is_some() {
                break;
            }
        }
        let missing = |kind| move || DecodeError::new("flow with both tuples", kind, 0);
        let original = original.ok_or_else(missing(TUPLE_ORIGINAL))?;
        let mut flow = Self::new(original, reply.ok_or_else(missing(TUPLE_REPLY))?);
        for attr in Attrs::new(attributes) {
            flow.set(attr?)?;
        }
        // Empty attributes create no extension.
        let is_empty = |extension: &Extension| *extension == Extension::default();
        flow.extension = flow.extension.filter(|extension| !is_empty(extension));
        Ok(flow)
    }

    /// Decodes an attribute; ignores tuples.
    fn set(&mut self, attr: Attr<'_>) -> Result<(), DecodeError> {
        match attr.kind {
            TUPLE_ORIGINAL | TUPLE_REPLY => {}
            STATUS => self.status = Status::from_bits_retain(attr.be32()?),
            PROTOCOL_INFO => self.state = State::decode(attr)?,
            TIMEOUT => self.timeout = Some(attr.be32()?),
            MARK => self.mark = Some(attr.be32()?),
            COUNTERS_ORIGINAL => self.original_counters = Some(counters(attr)?),
            COUNTERS_REPLY => self.reply_counters = Some(counters(attr)?),
            USE => self.use_count = Some(attr.be32()?),
            ID => self.id = Some(attr.be32()?),
            ZONE => self.zone = Some(attr.be16()?),
            // Without an adjustment the kernel sends an empty attribute.
            SEQ_ADJ_ORIGINAL | SEQ_ADJ_REPLY if attr.value.is_empty() => {}
            _ => return self.extension_mut().set(attr),
        }
        Ok(())
    }

    /// Appends the payload of a message in which the kernel reports the flow.
    ///
    /// [`Request::Create`](super::Request::Create) encodes a creation.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_header(out, self.family().number(), 0);
        self.original.encode(out, TUPLE_ORIGINAL);
        self.reply.encode(out, TUPLE_REPLY);
        put_be32(out, STATUS, self.status.bits());
        if let Some(state) = &self.state {
            nest(out, PROTOCOL_INFO, |out| state.encode(out));
        }
        for (kind, number) in [
            (TIMEOUT, self.timeout),
            (MARK, self.mark),
            (USE, self.use_count),
            (ID, self.id),
        ] {
            if let Some(number) = number {
                put_be32(out, kind, number);
            }
        }
        for (kind, counters) in [
            (COUNTERS_ORIGINAL, self.original_counters),
            (COUNTERS_REPLY, self.reply_counters),
        ] {
            if let Some(Counters { packets, bytes }) = counters {
                nest(out, kind, |out| {
                    put_be64(out, 1, packets);
                    put_be64(out, 2, bytes);
                });
            }
        }
        if let Some(zone) = self.zone {
            put_be16(out, ZONE, zone);
        }
        if let Some(extension) = &self.extension {
            extension.encode(out);
        }
    }
}

impl Extension {
    /// Decodes an attribute.
    fn set(&mut self, attr: Attr<'_>) -> Result<(), DecodeError> {
        match attr.kind {
            HELP => {
                for attr in attr.attrs() {
                    let attr = attr?;
                    match attr.kind {
                        1 => self.helper = Some(attr.str()?.into()),
                        2 => self.helper_info = Some(attr.value.to_vec()),
                        _ => {}
                    }
                }
            }
            TUPLE_MASTER => self.master = Some(Tuple::decode(attr)?),
            SEQ_ADJ_ORIGINAL => {
                let [correction_pos, offset_before, offset_after] = numbers(attr)?;
                self.original_seq_adj = Some(SeqAdj {
                    correction_pos,
                    offset_before,
                    offset_after,
                });
            }
            SEQ_ADJ_REPLY => {
                let [correction_pos, offset_before, offset_after] = numbers(attr)?;
                self.reply_seq_adj = Some(SeqAdj {
                    correction_pos,
                    offset_before,
                    offset_after,
                });
            }
            SECURITY => {
                for attr in attr.attrs() {
                    let attr = attr?;
                    if attr.kind == 1 {
                        self.security = Some(attr.str()?.into());
                    }
                }
            }
            TIMESTAMP => self.timestamps = Some(timestamps(attr)?),
            LABELS => self.labels = Some(Labels(attr.value.to_vec())),
            SYNPROXY => {
                let [isn, its, tsoff] = numbers(attr)?;
                self.synproxy = Some(Synproxy { isn, its, tsoff });
            }
            kind => self.other.push(Other {
                kind,
                value: attr.value.to_vec(),
            }),
        }
        Ok(())
    }

    fn encode(&self, out: &mut Vec<u8>) {
        if let Some(master) = &self.master {
            master.encode(out, TUPLE_MASTER);
        }
        if let Some(Timestamps { start, stop }) = self.timestamps {
            nest(out, TIMESTAMP, |out| {
                put_be64(out, 1, start);
                if let Some(stop) = stop {
                    put_be64(out, 2, stop);
                }
            });
        }
        if self.helper.is_some() || self.helper_info.is_some() {
            nest(out, HELP, |out| {
                if let Some(name) = &self.helper {
                    put_str(out, 1, name);
                }
                if let Some(info) = &self.helper_info {
                    put(out, 2, info);
                }
            });
        }
        if let Some(Labels(bytes)) = &self.labels {
            put(out, LABELS, bytes);
        }
        if let Some(name) = &self.security {
            nest(out, SECURITY, |out| put_str(out, 1, name));
        }
        let seq_adj = |it: SeqAdj| [it.correction_pos, it.offset_before, it.offset_after];
        for (kind, numbers) in [
            (SEQ_ADJ_ORIGINAL, self.original_seq_adj.map(seq_adj)),
            (SEQ_ADJ_REPLY, self.reply_seq_adj.map(seq_adj)),
            (SYNPROXY, self.synproxy.map(|of| [of.isn, of.its, of.tsoff])),
        ] {
            if let Some(numbers) = numbers {
                nest(out, kind, |out| {
                    for (place, number) in (1..).zip(numbers) {
                        put_be32(out, place, number);
                    }
                });
            }
        }
        for Other { kind, value } in &self.other {
            put(out, *kind, value);
        }
    }
}

fn counters(attr: Attr<'_>) -> Result<Counters, DecodeError> {
    let mut counters = Counters::default();
    for attr in attr.attrs() {
        let attr = attr?;
        match attr.kind {
            1 => counters.packets = attr.be64()?,
            2 => counters.bytes = attr.be64()?,
            _ => {}
        }
    }
    Ok(counters)
}

fn timestamps(attr: Attr<'_>) -> Result<Timestamps, DecodeError> {
    let mut timestamps = Timestamps::default();
    for attr in attr.attrs() {
        let attr = attr?;
        match attr.kind {
            1 => timestamps.start = attr.be64()?,
            2 => timestamps.stop = Some(attr.be64()?),
            _ => {}
        }
    }
    Ok(timestamps)
}

/// Decodes three nested numbers with the types 1 to 3.
fn numbers(attr: Attr<'_>) -> Result<[u32; 3], DecodeError> {
    let mut numbers = [0; 3];
    for attr in attr.attrs() {
        let attr = attr?;
        let place = usize::from(attr.kind).wrapping_sub(1);
        if let Some(number) = numbers.get_mut(place) {
            *number = attr.be32()?;
        }
    }
    Ok(numbers)
}
