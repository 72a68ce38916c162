//! Tests of the number of words that a bitmap stores and reads.

use std::cell::Cell;

use super::*;

#[test]
fn a_full_bitmap_has_no_free_number_until_one_is_removed() {
    for len in [1, 63, 64, 65, 4096, 4097, 262_145, MAX_DENSE_LEN + 3] {
        let mut bitmap = Bitmap::new(len);
        for number in 0..len {
            assert!(bitmap.insert(number), "{number} of {len}");
        }
        assert_eq!(bitmap.next_free(0), None, "{len}");
        assert!(!bitmap.insert(len), "{len} is outside");
        for number in [0, len / 2, len - 1] {
            assert!(bitmap.remove(number));
            assert_eq!(bitmap.next_free(0), Some(number), "{len}");
            assert_eq!(bitmap.next_free(number), Some(number), "{len}");
            assert_eq!(bitmap.next_free(number + 1), None, "{len}");
            assert!(bitmap.insert(number));
        }
        assert_eq!(bitmap.count(), len);
    }
}

#[test]
fn the_largest_bitmap_stores_words_of_its_elements_only() {
    let mut bitmap = Bitmap::new(u128::MAX);
    assert_eq!(bitmap.next_free(u128::MAX - 1), Some(u128::MAX - 1));
    assert!(bitmap.insert(u128::MAX - 1));
    assert!(bitmap.insert(0));
    assert_eq!(bitmap.next_free(u128::MAX - 1), None);
    assert_eq!(bitmap.next_free(0), Some(1));
    assert_eq!(bitmap.iter().collect::<Vec<_>>(), [0, u128::MAX - 1]);
    assert!(bitmap.remove(0) && bitmap.remove(u128::MAX - 1));
    assert_eq!(words(&bitmap), 0);
}

#[test]
fn a_sparse_bitmap_stores_at_most_one_word_per_element() {
    let mut bitmap = Bitmap::new(1 << 64);
    for number in 0..1000 {
        assert!(bitmap.insert(number * 0x003f_1337_dead_beef));
    }
    assert_eq!(words(&bitmap), 1000);
    for number in 0..64 * 64 {
        bitmap.insert(number);
    }
    // 64 full words add one word in the second level, which adds one in the third.
    assert_eq!(words(&bitmap), 999 + 64 + 1 + 1);
}

/// Returns the number of words of a sparse bitmap.
#[track_caller]
fn words(bitmap: &Bitmap) -> usize {
    match &bitmap.levels {
        Levels::Dense(_) => panic!("the bitmap is dense"),
        Levels::Sparse(Tree { bottom, upper }) => {
            bottom.len() + upper.iter().map(BTreeMap::len).sum::<usize>()
        }
    }
}

/// Words with a counter of reads.
struct Counted(Vec<u64>, Cell<usize>);

impl Words for Counted {
    type Number = usize;

    fn new(words: u128) -> Self {
        Self(Words::new(words), Cell::default())
    }

    fn get(&self, word: usize) -> u64 {
        self.1.set(self.1.get() + 1);
        Words::get(&self.0, word)
    }

    fn put(&mut self, word: usize, bits: u64) {
        self.0.put(word, bits);
    }
}

#[test]
fn a_free_number_is_found_within_seven_words_of_65536() {
    let mut tree: Tree<Counted> = Tree::new(1 << 16);
    for number in 0..1 << 16 {
        tree.insert(number);
    }
    let looks = |tree: &Tree<Counted>| -> usize {
        let levels = iter::once(&tree.bottom).chain(&tree.upper);
        levels.map(|level| level.1.take()).sum()
    };
    for free in [
        None,
        Some(65_535),
        Some(40_000),
        Some(64),
        Some(63),
        Some(0),
    ] {
        if let Some(free) = free {
            tree.remove(free);
        }
        for from in (0..1 << 16).step_by(61) {
            looks(&tree);
            let found = tree.next_free(from);
            assert!(looks(&tree) <= 7, "{found} from {from}");
            let expected = free.filter(|free| from <= *free);
            assert_eq!(Some(found).filter(|found| *found < 1 << 16), expected);
        }
        if let Some(free) = free {
            tree.insert(free);
        }
    }
}
