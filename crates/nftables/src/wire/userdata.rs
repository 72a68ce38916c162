//! User data: metadata that `nft` stores in the kernel for its listings.
//!
//! User data consists of records: type (one byte), length (one byte) and content.
//! Integers are in host byte order. The kernel does not interpret user data
//! (`libnftnl/udata.h`).

use super::typeof_record::{declared, expression, record};
use crate::expression::Expression;
use crate::value::ByteOrder;
use crate::{Bytes, Comment, DataKind, Datatype, Field, SetSpec};

/// Comment: `NFTNL_UDATA_TABLE_COMMENT`, `NFTNL_UDATA_CHAIN_COMMENT`, `NFTNL_UDATA_RULE_COMMENT`,
/// `NFTNL_UDATA_OBJ_COMMENT` and `NFTNL_UDATA_SET_ELEM_COMMENT`, which have one number.
const COMMENT: u8 = 0;
// enum nftnl_udata_set_elem_types
const NFTNL_UDATA_SET_ELEM_FLAGS: u8 = 1;
// enum nftnl_udata_set_elem_flags
const NFTNL_SET_ELEM_F_INTERVAL_OPEN: u32 = 1;
// enum nftnl_udata_set_types
const NFTNL_UDATA_SET_KEYBYTEORDER: u8 = 0;
const NFTNL_UDATA_SET_DATABYTEORDER: u8 = 1;
const NFTNL_UDATA_SET_MERGE_ELEMENTS: u8 = 2;
const NFTNL_UDATA_SET_KEY_TYPEOF: u8 = 3;
const NFTNL_UDATA_SET_DATA_TYPEOF: u8 = 4;
const NFTNL_UDATA_SET_DATA_INTERVAL: u8 = 6;
const NFTNL_UDATA_SET_COMMENT: u8 = 7;
// of NFTNL_UDATA_SET_KEY_TYPEOF and NFTNL_UDATA_SET_DATA_TYPEOF
const NFTNL_UDATA_SET_TYPEOF_EXPR: u8 = 0;
const NFTNL_UDATA_SET_TYPEOF_DATA: u8 = 1;
// enum expr_types of nft 1.0.6
const EXPR_CONCAT: u32 = 13;

/// Appends a comment record.
pub(crate) fn put_comment(out: &mut Vec<u8>, comment: &Comment) {
    put_text(out, COMMENT, comment);
}

/// Decodes the comment of a table, chain, rule or element.
pub(crate) fn comment(bytes: &[u8]) -> Option<Comment> {
    text(Records(bytes).find(COMMENT)?)
}

/// Appends the user data of an object with a comment.
///
/// `raw` is the user data of a dump, used unless the comment changed since.
pub(crate) fn put_plain(out: &mut Vec<u8>, raw: Option<&Bytes>, comment: Option<&Comment>) {
    match (raw, comment) {
        (Some(raw), comment) if self::comment(raw).as_ref() == comment => {
            out.extend_from_slice(raw);
        }
        (_, Some(comment)) => put_comment(out, comment),
        (_, None) => {}
    }
}

/// Decodes the user data of an object with a comment. Also returns the user data if
/// [`put_plain`] would not write it from the comment.
pub(crate) fn plain(bytes: &[u8]) -> (Option<Comment>, Option<Bytes>) {
    let (comment, mut usual) = (comment(bytes), Vec::new());
    put_plain(&mut usual, None, comment.as_ref());
    let raw = (usual != bytes).then(|| bytes.into());
    (comment, raw)
}

/// Appends the record of an open-ended interval.
pub(crate) fn put_open(out: &mut Vec<u8>) {
    put_u32(
        out,
        NFTNL_UDATA_SET_ELEM_FLAGS,
        NFTNL_SET_ELEM_F_INTERVAL_OPEN,
    );
}

/// Appends the records of a set: those of a dump, unless the set changed since.
pub(crate) fn put_set(out: &mut Vec<u8>, set: &SetSpec) {
    match &set.userdata {
        Some(raw) if describes(raw, set) => out.extend_from_slice(raw),
        _ => put_typed(out, set),
    }
}

/// Returns whether user data of a dump has the comment, the expressions and the options
/// of a set.
fn describes(raw: &[u8], set: &SetSpec) -> bool {
    let mut read = set.clone();
    read.clear_userdata();
    read_set(raw, &mut read);
    read.userdata.clone_from(&set.userdata);
    has_data_intervals(raw) == set.data_intervals && read == *set
}

/// Appends the records that follow from the fields of a set.
fn put_typed(out: &mut Vec<u8>, set: &SetSpec) {
    put_u32(out, NFTNL_UDATA_SET_KEYBYTEORDER, order(&set.key));
    match &set.data {
        DataKind::None | DataKind::Object(_) => {}
        DataKind::Verdict => put_u32(out, NFTNL_UDATA_SET_DATABYTEORDER, 0),
        DataKind::Fields(fields) => put_u32(out, NFTNL_UDATA_SET_DATABYTEORDER, order(fields)),
    }
    if set.auto_merge {
        put_u32(out, NFTNL_UDATA_SET_MERGE_ELEMENTS, 1);
    }
    let data = match &set.data {
        DataKind::Fields(fields) => &fields[..],
        _ => &[],
    };
    if set.is_typeof() {
        put_typeof(out, NFTNL_UDATA_SET_KEY_TYPEOF, &set.key);
        if !data.is_empty() {
            put_typeof(out, NFTNL_UDATA_SET_DATA_TYPEOF, data);
        }
    }
    if set.data != DataKind::None {
        put_u32(
            out,
            NFTNL_UDATA_SET_DATA_INTERVAL,
            set.data_intervals.into(),
        );
    }
    if let Some(comment) = &set.comment {
        put_text(out, NFTNL_UDATA_SET_COMMENT, comment);
    }
}

/// Returns whether the elements of a set map to intervals of data.
pub(crate) fn has_data_intervals(bytes: &[u8]) -> bool {
    Records(bytes)
        .find(NFTNL_UDATA_SET_DATA_INTERVAL)
        .and_then(as_u32)
        == Some(1)
}

/// Decodes the comment of a set, the option `auto-merge`, and the `typeof` expressions
/// of its fields. Keeps the user data if this crate would write it otherwise.
pub(crate) fn read_set(bytes: &[u8], set: &mut SetSpec) {
    let records = Records(bytes);
    let merge = records
        .find(NFTNL_UDATA_SET_MERGE_ELEMENTS)
        .and_then(as_u32);
    set.auto_merge = merge.is_some_and(|merge| merge != 0);
    set.comment = records.find(NFTNL_UDATA_SET_COMMENT).and_then(text);
    if let Some(content) = records.find(NFTNL_UDATA_SET_KEY_TYPEOF) {
        read_typeof(content, &mut set.key);
    }
    if let (Some(content), DataKind::Fields(fields)) =
        (records.find(NFTNL_UDATA_SET_DATA_TYPEOF), &mut set.data)
    {
        read_typeof(content, fields);
    }
    let mut usual = Vec::new();
    put_typed(&mut usual, set);
    set.userdata = (usual != bytes).then(|| bytes.into());
}

/// Returns nft's number for the byte order of fields.
fn order(fields: &[Field]) -> u32 {
    match fields {
        [field] if field.order() == ByteOrder::Host => 1,
        [_] => 2,
        _ => 0,
    }
}

impl SetSpec {
    /// Returns whether nft has text for the expressions of all fields (`typeof`).
    pub(crate) fn is_declared(&self) -> bool {
        let has_text = |field: &Field| field.expression.is_some() || field.declared.is_some();
        let data = match &self.data {
            DataKind::Fields(fields) => &fields[..],
            _ => &[],
        };
        self.is_typeof() || self.key.iter().chain(data).all(has_text)
    }

    /// Clears the fields that [`read_set`] sets.
    fn clear_userdata(&mut self) {
        let data = match &mut self.data {
            DataKind::Fields(fields) => &mut fields[..],
            _ => &mut [],
        };
        for field in self.key.iter_mut().chain(data) {
            (field.expression, field.declared) = (None, None);
        }
        self.auto_merge = false;
        self.comment = None;
        self.userdata = None;
    }

    /// Returns whether nft can store the expressions of all fields (`typeof`).
    pub(crate) fn is_typeof(&self) -> bool {
        let known = |fields: &[Field]| {
            fields
                .iter()
                .all(|f| f.expression.as_ref().and_then(record).is_some())
        };
        known(&self.key)
            && match &self.data {
                DataKind::Fields(fields) => known(fields),
                _ => true,
            }
    }
}

fn put_typeof(out: &mut Vec<u8>, ty: u8, fields: &[Field]) {
    let kinds = fields
        .iter()
        .filter_map(|field| record(field.expression.as_ref()?));
    put(out, ty, |out| match fields {
        [_] => kinds.for_each(|(kind, numbers)| put_kind(out, kind, &numbers)),
        _ => {
            put_u32(out, NFTNL_UDATA_SET_TYPEOF_EXPR, EXPR_CONCAT);
            put(out, NFTNL_UDATA_SET_TYPEOF_DATA, |out| {
                for (index, (kind, numbers)) in (0..).zip(kinds) {
                    put(out, index, |out| put_kind(out, kind, &numbers));
                }
            });
        }
    });
}

fn put_kind(out: &mut Vec<u8>, kind: u32, numbers: &[(u8, u32)]) {
    put_u32(out, NFTNL_UDATA_SET_TYPEOF_EXPR, kind);
    put(out, NFTNL_UDATA_SET_TYPEOF_DATA, |out| {
        for (index, number) in numbers {
            put_u32(out, *index, *number);
        }
    });
}

fn read_typeof(content: &[u8], fields: &mut [Field]) {
    let is_padded = fields.len() > 1;
    let read = |content: &[u8], field: &mut Field| {
        let record = Records(content);
        let parameters = Records(record.find(NFTNL_UDATA_SET_TYPEOF_DATA).unwrap_or_default());
        let parameters = parameters.filter_map(|(id, number)| Some((id, as_u32(number)?)));
        let parameters: Vec<(u8, u32)> = parameters.collect();
        let numbers: Vec<u32> = parameters.iter().map(|(_, number)| *number).collect();
        let kind = record.find(NFTNL_UDATA_SET_TYPEOF_EXPR).and_then(as_u32);
        let known = kind.and_then(|kind| expression(kind, &numbers));
        let words = |bytes: u16| bytes.div_ceil(4);
        let fits = |known: &Expression| match is_padded && field.datatype == Datatype::Integer {
            true => words(known.bytes()) == words(field.bytes),
            false => known.bytes() == field.bytes,
        };
        field.expression = known.filter(fits);
        match &field.expression {
            Some(expression) => field.bytes = expression.bytes(),
            None => {
                field.declared = kind.and_then(|kind| declared(kind, &parameters));
                let bytes = field.declared.as_ref().and_then(|declared| declared.bytes);
                let is_shorter = |bytes: &u16| is_padded && words(*bytes) == words(field.bytes);
                if let Some(bytes) = bytes.filter(is_shorter) {
                    field.bytes = bytes;
                }
            }
        }
    };
    if let [field] = fields {
        return read(content, field);
    }
    let Some(content) = Records(content).find(NFTNL_UDATA_SET_TYPEOF_DATA) else {
        return;
    };
    for (field, (_, content)) in fields.iter_mut().zip(Records(content)) {
        read(content, field);
    }
}

/// Appends a record with the content that `body` appends.
///
/// Omits the record if the content is longer than 255 bytes.
fn put(out: &mut Vec<u8>, ty: u8, body: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&[ty, 0]);
    body(out);
    match u8::try_from(out.len() - start - 2) {
        Ok(len) => {
            if let Some(field) = out.get_mut(start + 1) {
                *field = len;
            }
        }
        Err(_) => out.truncate(start),
    }
}

fn put_u32(out: &mut Vec<u8>, ty: u8, number: u32) {
    put(out, ty, |out| out.extend_from_slice(&number.to_ne_bytes()));
}

fn put_text(out: &mut Vec<u8>, ty: u8, comment: &Comment) {
    put(out, ty, |out| {
        out.extend_from_slice(comment.as_str().as_bytes());
        out.push(0);
    });
}

fn as_u32(content: &[u8]) -> Option<u32> {
    content.try_into().ok().map(u32::from_ne_bytes)
}

fn text(content: &[u8]) -> Option<Comment> {
    let text = content.strip_suffix(&[0]).unwrap_or(content);
    Comment::new(std::str::from_utf8(text).ok()?).ok()
}

/// Iterator over records. Stops at a truncated record.
#[derive(Clone, Copy)]
struct Records<'a>(&'a [u8]);

impl<'a> Records<'a> {
    fn find(mut self, ty: u8) -> Option<&'a [u8]> {
        self.find_map(|(found, content)| (found == ty).then_some(content))
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = (u8, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let (&[ty, len], rest) = self.0.split_first_chunk::<2>()?;
        let (content, rest) = rest.split_at_checked(usize::from(len))?;
        self.0 = rest;
        Some((ty, content))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expression::{concat, ip_daddr, l4proto, numgen_random, tcp_dport, th_dport};
    use crate::{Family, Name, Set, TableId};

    fn backends() -> Set {
        let table = TableId::new(Family::Ip, Name::new("t").unwrap());
        let key = concat((ip_daddr(), l4proto(), th_dport(), numgen_random(2))).into_fields();
        let data = concat((ip_daddr(), tcp_dport())).into_fields();
        Set::map(table, Name::new("m").unwrap(), key, data)
    }

    #[test]
    fn a_typeof_map_has_the_records_that_nft_writes() {
        // nft --debug=mnl add map ip t m { typeof ip daddr . meta l4proto . th dport
        //   . numgen random mod 2 : ip daddr . tcp dport; }
        let recorded = "00040000000001040000000003600004\
            0d000000015800140004070000000 10c00040c00000001040c000000010e0004\
            0900000001060004100000000214000407000000010c00040b0000000104020000\
            00031a0004170000000112000401000000010402000000020400000000\
            043400040d000000012c00140004070000 00010c00040c00000001040c00000001\
            14000407000000010c00040800000001040200000006040000000 0";
        let recorded: String = recorded.split_whitespace().collect();
        let mut out = Vec::new();
        put_set(&mut out, &backends());
        let hex: String = out.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, recorded);
    }

    #[test]
    fn typeof_expressions_round_trip() {
        let mut out = Vec::new();
        let wanted = (*backends()).clone();
        put_set(&mut out, &wanted);
        let mut read = wanted.clone();
        for field in &mut read.key {
            field.expression = None;
        }
        read_set(&out, &mut read);
        assert_eq!(read, wanted);
    }

    #[test]
    fn truncated_records_are_ignored() {
        assert_eq!(
            Records(&[0, 1, 7, 1, 9, 9]).collect::<Vec<_>>(),
            [(0, &[7][..])]
        );
        assert_eq!(comment(&[0, 2, b'x', 0]), Comment::new("x").ok());
        assert_eq!(comment(&[]), None);
    }
}
