//! Tests of single properties of the cache.

use super::*;
use crate::forward::query::Query;

/// Returns an answer of about `extra` bytes.
fn answer(extra: usize) -> Answer {
    let name = [&vec![1; extra][..], &[0]].concat();
    let query = Query {
        id: 0,
        name: &name,
        record_type: 1,
        class: 1,
        recursion_desired: true,
        authentic_data: false,
        checking_disabled: false,
        edns: None,
    };
    Answer::error(&query, 0)
}

fn entry(answer_type: AnswerType, lifetime: u64) -> NewEntry {
    let lifetime = Duration::from_secs(lifetime);
    NewEntry {
        answer: answer(10),
        answer_type,
        lifetime,
        is_failure: false,
    }
}

fn success(lifetime: u64) -> NewEntry {
    entry(AnswerType::Success, lifetime)
}

fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn key(number: usize) -> Vec<u8> {
    format!("flags{number}").into_bytes()
}

fn small(success_capacity: usize) -> Cache {
    Cache::new(&CacheOptions {
        success_capacity,
        denial_capacity: 10,
        ..CacheOptions::default()
    })
}

fn freshness(cache: &mut Cache, key: &[u8], now: Duration) -> Option<Freshness> {
    cache.get(key, now).map(|hit| hit.freshness)
}

#[test]
fn an_entry_is_fresh_then_expired_then_removed() {
    let mut cache = small(10);
    cache.insert(b"a", success(10), at(100));
    assert_eq!(
        freshness(&mut cache, b"a", at(100)),
        Some(Freshness::Fresh(0))
    );
    let almost = at(110) - Duration::from_nanos(1);
    assert_eq!(
        freshness(&mut cache, b"a", almost),
        Some(Freshness::Fresh(9))
    );
    assert_eq!(
        freshness(&mut cache, b"a", at(110)),
        Some(Freshness::Expired)
    );
    assert_eq!(
        freshness(&mut cache, b"a", at(110 + 3_599)),
        Some(Freshness::Expired)
    );
    assert_eq!(cache.len(AnswerType::Success), 1);
    assert_eq!(freshness(&mut cache, b"a", at(110 + 3_600)), None);
    assert_eq!(cache.len(AnswerType::Success), 0);
}

#[test]
fn an_expired_entry_answers_after_a_failed_refresh_and_is_rechecked() {
    let mut cache = small(10);
    cache.insert(b"a", success(10), at(0));
    assert!(cache.refresh_failed(b"a", at(5)), "a fresh entry answers");
    assert_eq!(
        freshness(&mut cache, b"a", at(9)),
        Some(Freshness::Fresh(9))
    );
    assert!(cache.refresh_failed(b"a", at(10)));
    let refreshes = (10..21)
        .filter(|&seconds| {
            let hit = cache.get(b"a", at(seconds)).unwrap();
            assert_eq!(hit.freshness, Freshness::Stale);
            hit.needs_refresh
        })
        .collect::<Vec<_>>();
    assert_eq!(refreshes, [15, 20]);
    assert!(
        !cache.refresh_failed(b"a", at(10 + 3_600)),
        "the stale time is over"
    );
    assert!(
        !cache.refresh_failed(b"b", at(10)),
        "there is no such entry"
    );
    cache.insert(b"a", success(10), at(30));
    assert_eq!(
        freshness(&mut cache, b"a", at(30)),
        Some(Freshness::Fresh(0))
    );
}

#[test]
fn a_failure_is_cached_for_at_most_five_seconds_and_is_never_stale() {
    let options = CacheOptions {
        servfail_ttl: at(300),
        ..CacheOptions::default()
    };
    let mut cache = Cache::new(&options);
    cache.insert(
        b"a",
        NewEntry::failure(answer(1), true, &options).unwrap(),
        at(0),
    );
    cache.insert(
        b"b",
        NewEntry::failure(answer(1), false, &options).unwrap(),
        at(0),
    );
    assert_eq!(
        freshness(&mut cache, b"a", at(4)),
        Some(Freshness::Fresh(4))
    );
    assert_eq!(
        freshness(&mut cache, b"b", at(0)),
        Some(Freshness::Fresh(0))
    );
    assert!(!cache.refresh_failed(b"a", at(5)));
    assert_eq!(freshness(&mut cache, b"a", at(5)), None);
    assert_eq!(freshness(&mut cache, b"b", at(1)), None);
    let disabled = CacheOptions {
        servfail_ttl: Duration::ZERO,
        ..CacheOptions::default()
    };
    assert!(NewEntry::failure(answer(1), true, &disabled).is_none());
}

#[test]
fn a_popular_entry_is_prefetched_once_near_its_end() {
    let mut cache = small(10);
    cache.insert(b"popular", success(100), at(0));
    cache.insert(b"rare", success(100), at(0));
    for seconds in [1, 2, 3, 89] {
        assert!(!cache.get(b"popular", at(seconds)).unwrap().needs_refresh);
    }
    assert!(cache.get(b"popular", at(90)).unwrap().needs_refresh);
    assert!(
        !cache.get(b"popular", at(91)).unwrap().needs_refresh,
        "a refresh is under way"
    );
    assert!(
        cache.get(b"popular", at(92)).unwrap().needs_refresh,
        "the refresh was lost"
    );
    assert!(!cache.get(b"rare", at(95)).unwrap().needs_refresh);
    cache.insert(b"popular", success(100), at(95));
    assert!(
        !cache.get(b"popular", at(190)).unwrap().needs_refresh,
        "hits count once"
    );
}

#[test]
fn a_short_entry_is_prefetched_in_its_last_second() {
    let mut cache = small(10);
    cache.insert(b"a", success(5), at(0));
    for _ in 0..10 {
        assert!(
            !cache
                .get(b"a", Duration::from_millis(3_999))
                .unwrap()
                .needs_refresh
        );
    }
    assert!(cache.get(b"a", at(4)).unwrap().needs_refresh);
}

#[test]
fn names_that_are_asked_once_do_not_displace_popular_ones() {
    let mut cache = small(100);
    for number in 0..60 {
        cache.insert(&key(number), success(3_600), at(0));
        assert!(cache.get(&key(number), at(0)).is_some());
    }
    let evicted = (1_000..101_000).map(|number| cache.insert(&key(number), success(3_600), at(1)));
    assert_eq!(evicted.sum::<usize>(), 100_000 - 40);
    assert_eq!(cache.len(AnswerType::Success), 100);
    for number in 0..60 {
        assert!(cache.get(&key(number), at(2)).is_some(), "{number}");
    }
}

#[test]
fn negative_answers_do_not_displace_positive_ones() {
    let mut cache = small(10);
    cache.insert(b"a", success(60), at(0));
    for number in 0..1_000 {
        cache.insert(&key(number), entry(AnswerType::Denial, 60), at(0));
    }
    assert_eq!(
        (
            cache.len(AnswerType::Success),
            cache.len(AnswerType::Denial)
        ),
        (1, 10)
    );
    assert!(cache.get(b"a", at(1)).is_some());
}

#[test]
fn an_answer_of_the_other_type_replaces_an_entry() {
    let mut cache = small(10);
    cache.insert(b"a", success(60), at(0));
    cache.insert(b"a", entry(AnswerType::Denial, 60), at(1));
    assert_eq!(
        (
            cache.len(AnswerType::Success),
            cache.len(AnswerType::Denial)
        ),
        (0, 1)
    );
    assert_eq!(
        cache.get(b"a", at(1)).unwrap().answer_type,
        AnswerType::Denial
    );
}

#[test]
fn memory_is_bounded() {
    let memory = 100_000;
    let mut cache = Cache::new(&CacheOptions {
        memory,
        ..CacheOptions::default()
    });
    let large = |size| NewEntry {
        answer: answer(size),
        ..success(60)
    };
    for number in 0..1_000 {
        cache.insert(&key(number), large(10_000), at(0));
    }
    assert_eq!(cache.len(AnswerType::Success), 9);
    // An answer of more than a quarter of the memory is not stored, and removes its
    // predecessor.
    assert!(cache.get(&key(999), at(0)).is_some());
    cache.insert(&key(999), large(26_000), at(0));
    assert!(cache.get(&key(999), at(0)).is_none());
    assert_eq!(cache.len(AnswerType::Success), 8);
}

#[test]
fn a_capacity_of_zero_disables_caching() {
    let mut cache = small(0);
    cache.insert(b"a", success(60), at(0));
    assert!(cache.get(b"a", at(0)).is_none());
    cache.insert(b"a", entry(AnswerType::Denial, 60), at(0));
    cache.insert(b"a", success(60), at(0));
    assert!(cache.get(b"a", at(0)).is_none(), "the denial is outdated");
}

#[test]
fn a_flush_removes_selected_entries() {
    let mut cache = small(10);
    for number in 0..10 {
        cache.insert(&key(number), success(60), at(0));
    }
    cache.flush(|key| key.ends_with(b"3") || key.ends_with(b"7"));
    assert_eq!(cache.len(AnswerType::Success), 8);
    assert!(cache.get(&key(3), at(0)).is_none() && cache.get(&key(4), at(0)).is_some());
    cache.flush(|_| true);
    assert_eq!(cache.len(AnswerType::Success), 0);
}
