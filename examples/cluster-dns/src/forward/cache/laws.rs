//! Random histories of the cache, compared with a naive model.

use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;

use super::*;
use crate::forward::query::Query;

const CAPACITY: usize = 5;

#[derive(Clone, Debug)]
enum Step {
    Get(u8),
    Insert {
        key: u8,
        is_denial: bool,
        is_failure: bool,
        lifetime: u64,
    },
    Fail(u8),
    Flush(u8),
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let key = 0..12u8;
    let insert = (key.clone(), any::<bool>(), any::<bool>(), 0..30u64);
    let insert = insert.prop_map(|(key, is_denial, is_failure, lifetime)| Step::Insert {
        key,
        is_denial: is_denial || is_failure,
        is_failure,
        lifetime,
    });
    prop_oneof![
        4 => key.clone().prop_map(Step::Get),
        4 => insert,
        1 => key.clone().prop_map(Step::Fail),
        1 => key.prop_map(Step::Flush),
        2 => (0..8_000u64).prop_map(Step::Wait),
    ]
}

/// An entry of the model.
#[derive(Clone, Debug)]
struct Known {
    key: u8,
    /// Number of the insertion.
    version: u8,
    is_denial: bool,
    is_failure: bool,
    is_protected: bool,
    stored: Duration,
    lifetime: Duration,
    hits: u32,
    refresh_failed: bool,
    next_refresh: Duration,
}

/// All entries of both types, the one that was used last at the end.
#[derive(Debug, Default)]
struct Model {
    entries: Vec<Known>,
    now: Duration,
}

impl Model {
    fn take(&mut self, options: &CacheOptions, key: u8) -> Option<Known> {
        let at = self.entries.iter().position(|entry| entry.key == key)?;
        let entry = self.entries.remove(at);
        (self.now - entry.stored < entry.longest(options)).then_some(entry)
    }

    fn get(&mut self, options: &CacheOptions, key: u8) -> Option<(u8, Freshness, bool)> {
        let mut entry = self.take(options, key)?;
        let age = self.now - entry.stored;
        let (freshness, interval) = if age < entry.lifetime {
            entry.hits += 1;
            let tenth = (entry.lifetime / 10).max(Duration::from_secs(1));
            let is_due = entry.lifetime - age <= tenth && entry.hits >= 3 && !entry.is_failure;
            let age = u32::try_from(age.as_secs()).unwrap();
            (
                Freshness::Fresh(age),
                is_due.then_some(Duration::from_secs(2)),
            )
        } else if entry.refresh_failed {
            (Freshness::Stale, Some(options.stale_recheck))
        } else {
            (Freshness::Expired, None)
        };
        let interval = interval.filter(|_| self.now >= entry.next_refresh);
        if let Some(interval) = interval {
            entry.next_refresh = self.now + interval;
        }
        entry.is_protected = true;
        let version = entry.version;
        let is_denial = entry.is_denial;
        self.entries.push(entry);
        let protected = |entry: &Known| entry.is_denial == is_denial && entry.is_protected;
        if self.entries.iter().filter(|entry| protected(entry)).count() > CAPACITY * 8 / 10 {
            let oldest = self.entries.iter().position(protected).unwrap();
            let mut demoted = self.entries.remove(oldest);
            demoted.is_protected = false;
            self.entries.push(demoted);
        }
        Some((version, freshness, interval.is_some()))
    }

    fn insert(&mut self, new: Known) {
        let place = self.entries.iter().position(|known| known.key == new.key);
        match place {
            Some(at) if self.entries[at].is_denial == new.is_denial => {
                let is_protected = self.entries[at].is_protected;
                self.entries[at] = Known {
                    is_protected,
                    ..new
                };
                return;
            }
            Some(at) => drop(self.entries.remove(at)),
            None => {}
        }
        let of_type = |entry: &Known| entry.is_denial == new.is_denial;
        self.entries.push(new.clone());
        if self.entries.iter().filter(|entry| of_type(entry)).count() > CAPACITY {
            let candidate = |entry: &Known| of_type(entry) && !entry.is_protected;
            let oldest = self.entries.iter().position(candidate).unwrap();
            self.entries.remove(oldest);
        }
    }

    fn fail(&mut self, options: &CacheOptions, key: u8) -> bool {
        let now = self.now;
        let Some(entry) = self.entries.iter_mut().find(|entry| entry.key == key) else {
            return false;
        };
        let age = now - entry.stored;
        if age >= entry.lifetime && age < entry.longest(options) {
            entry.refresh_failed = true;
            entry.next_refresh = now + options.stale_recheck;
        }
        age < entry.longest(options)
    }
}

impl Known {
    fn longest(&self, options: &CacheOptions) -> Duration {
        if self.is_failure {
            self.lifetime
        } else {
            self.lifetime + options.stale
        }
    }
}

/// Returns an answer that differs for each version.
fn answer(version: u8) -> Answer {
    let query = Query {
        id: 0,
        name: &[1, version, 0],
        record_type: u16::from(version),
        class: 1,
        recursion_desired: true,
        authentic_data: false,
        checking_disabled: false,
        edns: None,
    };
    Answer::error(&query, 0)
}

fn run(steps: &[Step]) -> TestCaseResult {
    let options = CacheOptions {
        success_capacity: CAPACITY,
        denial_capacity: CAPACITY,
        stale: Duration::from_secs(20),
        ..CacheOptions::default()
    };
    let mut cache = Cache::new(&options);
    let mut model = Model::default();
    for (version, step) in steps.iter().enumerate() {
        let version = u8::try_from(version).unwrap();
        match *step {
            Step::Get(key) => {
                let hit = cache.get(&[key], model.now);
                let hit = hit.map(|hit| (hit.answer.clone(), hit.freshness, hit.needs_refresh));
                let expected = model.get(&options, key);
                let expected = expected.map(|(at, state, refresh)| (answer(at), state, refresh));
                prop_assert_eq!(hit, expected);
            }
            Step::Insert {
                key,
                is_denial,
                is_failure,
                lifetime,
            } => {
                let lifetime = Duration::from_secs(lifetime);
                let answer_type = if is_denial {
                    AnswerType::Denial
                } else {
                    AnswerType::Success
                };
                let answer = answer(version);
                let new = NewEntry {
                    answer,
                    answer_type,
                    lifetime,
                    is_failure,
                };
                cache.insert(&[key], new, model.now);
                model.insert(Known {
                    key,
                    version,
                    is_denial,
                    is_failure,
                    is_protected: false,
                    stored: model.now,
                    lifetime,
                    hits: 0,
                    refresh_failed: false,
                    next_refresh: Duration::ZERO,
                });
            }
            Step::Fail(key) => {
                let answers = model.fail(&options, key);
                prop_assert_eq!(cache.refresh_failed(&[key], model.now), answers);
            }
            Step::Flush(remainder) => {
                cache.flush(|key| key[0] % 4 == remainder);
                model.entries.retain(|entry| entry.key % 4 != remainder);
            }
            Step::Wait(milliseconds) => model.now += Duration::from_millis(milliseconds),
        }
        for (answer_type, is_denial) in [(AnswerType::Success, false), (AnswerType::Denial, true)] {
            let of_type = |entry: &&Known| entry.is_denial == is_denial;
            prop_assert_eq!(
                cache.len(answer_type),
                model.entries.iter().filter(of_type).count()
            );
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn the_cache_behaves_as_the_model(steps in proptest::collection::vec(step(), 0..200)) {
        run(&steps)?;
    }
}
