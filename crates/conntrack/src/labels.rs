//! Labels of flows, and their names.

/// Number of labels of a flow.
const LABELS: usize = 128;
/// Size of a word of labels, in bytes.
const WORD: usize = size_of::<usize>();

/// Labels of a flow: a bit set as the kernel stores it, in words of host byte order.
///
/// ```
/// use vipline_conntrack::Labels;
///
/// let mut labels = Labels::from_iter([3, 127]);
/// labels.remove(3);
/// assert!(labels.contains(127));
/// assert_eq!(labels.iter().collect::<Vec<u8>>(), [127]);
/// ```
///
/// Exhaustive: a flow has 128 labels.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
pub struct Labels(pub Vec<u8>);

impl Labels {
    /// Returns whether a label is set.
    pub fn contains(&self, label: u8) -> bool {
        let (index, bit) = position(label);
        self.0.get(index).is_some_and(|byte| byte >> bit & 1 == 1)
    }

    /// Sets a label, from 0 to 127. Higher numbers are ignored.
    pub fn insert(&mut self, label: u8) {
        if usize::from(label) >= LABELS {
            return;
        }
        if self.0.len() < LABELS / 8 {
            self.0.resize(LABELS / 8, 0);
        }
        let (index, bit) = position(label);
        if let Some(byte) = self.0.get_mut(index) {
            *byte |= 1 << bit;
        }
    }

    /// Clears a label.
    pub fn remove(&mut self, label: u8) {
        let (index, bit) = position(label);
        if let Some(byte) = self.0.get_mut(index) {
            *byte &= !(1 << bit);
        }
    }

    /// Creates labels from bits: bit `n` is label `n`.
    pub fn from_bits(bits: u128) -> Self {
        (0..128).filter(|label| bits >> label & 1 == 1).collect()
    }

    /// Returns the labels as bits: bit `n` is label `n`.
    pub fn bits(&self) -> u128 {
        self.iter()
            .map(|label| 1_u128.checked_shl(label.into()).unwrap_or(0))
            .fold(0, |bits, bit| bits | bit)
    }

    /// Returns the labels that are set, in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = u8> + '_ {
        (0..=u8::MAX).filter(|label| self.contains(*label))
    }
}

impl FromIterator<u8> for Labels {
    fn from_iter<I: IntoIterator<Item = u8>>(labels: I) -> Self {
        let mut set = Self::default();
        labels.into_iter().for_each(|label| set.insert(label));
        set
    }
}

/// Returns the byte and the bit of a label.
fn position(label: u8) -> (usize, usize) {
    let label = usize::from(label);
    let (word, byte) = (label / (8 * WORD), label / 8 % WORD);
    let byte = match cfg!(target_endian = "little") {
        true => byte,
        false => WORD - 1 - byte,
    };
    (word * WORD + byte, label % 8)
}

/// Names of labels, as in `connlabel.conf`.
///
/// ```
/// use vipline_conntrack::LabelNames;
///
/// let names = LabelNames::parse("# comment\n0 web\n1 mail\n");
/// assert_eq!(names.label("mail"), Some(1));
/// assert_eq!(names.name(0), Some("web"));
/// ```
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct LabelNames {
    names: Vec<(u8, Box<str>)>,
}

impl LabelNames {
    /// Parses the text of `connlabel.conf`, usually at `/etc/xtables/connlabel.conf`:
    /// lines with a number from 0 to 127, white space and a name.
    ///
    /// Other lines are ignored, and so are repeated numbers and names, as `conntrack`
    /// ignores them.
    pub fn parse(text: &str) -> Self {
        let mut names: Vec<(u8, Box<str>)> = Vec::new();
        for line in text.lines() {
            let mut words = line.split_whitespace();
            let number = words.next().and_then(|word| word.parse::<u8>().ok());
            let (Some(label @ 0..128), Some(name)) = (number, words.next()) else {
                continue;
            };
            if !names
                .iter()
                .any(|(other, known)| *other == label || **known == *name)
            {
                names.push((label, name.into()));
            }
        }
        Self { names }
    }

    /// Returns the label with this name.
    pub fn label(&self, name: &str) -> Option<u8> {
        let found = self.names.iter().find(|(_, known)| **known == *name);
        found.map(|(label, _)| *label)
    }

    /// Returns the name of a label.
    pub fn name(&self, label: u8) -> Option<&str> {
        let found = self.names.iter().find(|(known, _)| *known == label);
        found.map(|(_, name)| &**name)
    }

    /// Returns the labels of a flow as `conntrack -o labels` prints them: names with
    /// commas. Labels without a name are omitted.
    pub fn format(&self, labels: &Labels) -> String {
        let names = labels.iter().filter_map(|label| self.name(label));
        names.collect::<Vec<&str>>().join(",")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_bits_of_words_in_host_byte_order() {
        let mut word = [0; 2 * WORD];
        word[..WORD].copy_from_slice(&(1_usize << 5 | 1 << 17).to_ne_bytes());
        word[WORD..].copy_from_slice(&1_usize.to_ne_bytes());
        let labels = Labels(word.to_vec());
        let second = u8::try_from(usize::BITS).unwrap();
        assert_eq!(labels.iter().collect::<Vec<u8>>(), [5, 17, second]);
        let again = Labels::from_iter([second, 17, 5]);
        assert_eq!(again, labels);
        assert_eq!(Labels::from_bits(labels.bits()), labels);
        assert_eq!(Labels::from_iter([128, 255]), Labels::default());
    }

    #[test]
    fn lines_without_a_number_and_a_name_are_ignored() {
        let names = LabelNames::parse("#0 a\n0 a\n0 b\n1 a\n128 c\nx d\n2\n 3\te f\n");
        assert_eq!(names.label("a"), Some(0));
        assert_eq!(names.label("e"), Some(3));
        for name in ["b", "c", "d", "f"] {
            assert_eq!(names.label(name), None, "{name}");
        }
        let labels = Labels::from_iter([3, 0, 9]);
        assert_eq!(names.format(&labels), "a,e");
    }
}
