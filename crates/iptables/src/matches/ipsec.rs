//! `-m ah`, `-m esp` and `-m ipcomp`: headers of IPsec.

use crate::field::extension;
use crate::negatable::Negatable;
use crate::number::Range;

/// An optional range of identifiers.
type Ids = Option<Negatable<Range<u32>>>;

/// Removes a condition that matches every number: iptables does not store it.
fn forget_all(ids: &mut Ids) {
    if *ids == Some(Negatable::Is(Range::<u32>::ALL)) {
        *ids = None;
    }
}

extension! {
    /// Matches the authentication header: `-m ah --ahspi 500`.
    pub struct Ah = "-m ah" {
        /// Security parameter index.
        spi: Option<Negatable<Range<u32>>> = "--ahspi",
        /// Length of the header. IPv6 only.
        length: Option<Negatable<u32>> = "--ahlen",
        /// Whether the reserved field is zero. IPv6 only.
        reserved: bool = "--ahres",
    }
    complete |_| true;
    normalize |it| forget_all(&mut it.spi);
}

extension! {
    /// Matches the encapsulating security payload: `-p esp -m esp --espspi 500`.
    pub struct Esp = "-m esp" {
        /// Security parameter index.
        spi: Option<Negatable<Range<u32>>> = "--espspi",
    }
    complete |_| true;
    normalize |it| forget_all(&mut it.spi);
}

extension! {
    /// Matches IP payload compression: `-p ipcomp -m ipcomp --ipcompspi 500`.
    pub struct Ipcomp = "-m ipcomp" {
        /// Compression parameter index.
        cpi: Option<Negatable<Range<u32>>> = "--ipcompspi",
        /// Whether the reserved field is zero.
        reserved: bool = "--compres",
    }
    complete |_| true;
    normalize |it| forget_all(&mut it.cpi);
}
