//! Restore programs that fail, time out, or reject deletions.

use proxy_core::backend::iptables::Kernel;
use proxy_core::{Event, Family};
use testkit::iptables::Programs;
use testkit::netns::Netns;
use testkit::scoped::Directory;
use vipline_iptables::{Client, Variant, program_name};

use super::chains::assert_programmed;
use super::{Access, Proxy, VARIANTS, assert_restart_writes_nothing};
use crate::fixtures::{self, web_with};

/// Wrappers of the programs of a variant. The restore program can be made to fail.
struct FaultyPrograms {
    programs: Programs,
    variant: Variant,
    fault: Directory,
}

impl FaultyPrograms {
    fn new(variant: Variant) -> Self {
        Self {
            programs: Programs::new().expect("a temporary directory"),
            variant,
            fault: Directory::new().expect("a temporary directory"),
        }
    }

    /// Returns a client that runs the wrappers of a family.
    fn client(&self, family: Family) -> Client {
        let name = format!("{}-{}", program_name(family), self.variant);
        let programs = &self.programs;
        let [save, restore] = programs.variant(&name).expect("the directory is writable");
        let fault = self.fault.path().join("fault");
        let script = format!(
            "NAME={}; if [ -e {fault} ] && [ \"$1\" != --version ]; then . {fault}; fi\n\
             exec $NAME \"$@\"",
            restore.display(),
            fault = fault.display(),
        );
        let restore = programs.script(&format!("faulty-{name}"), &script);
        Client::open_at(save, restore.expect("the directory is writable"))
            .expect("the program prints its version")
    }

    /// Returns a kernel that runs the wrappers of a family.
    fn kernel(&self, family: Family) -> Kernel {
        Kernel::with_client(self.client(family), family)
    }

    /// Makes the restore program run a shell fragment first.
    fn begin(&self, fault: &str) {
        self.fault
            .write("fault", fault)
            .expect("the directory is writable");
    }

    /// Makes the restore program work normally again.
    fn end(&self) {
        let fault = self.fault.path().join("fault");
        std::fs::remove_file(fault).expect("the object exists");
    }
}

#[test]
fn a_failed_restore_is_repaired_by_the_next_sync() {
    let faults = [
        // The program is killed before it reads its input.
        "kill -9 $$",
        // Only the first of several tables is written.
        "sed '/^COMMIT/q' | $NAME \"$@\"; exit 4",
        // A rule in the last table is rejected.
        "sed '$s/^COMMIT$/-A NO-SUCH-CHAIN -j ACCEPT\\nCOMMIT/' | $NAME \"$@\"; exit $?",
        // The program is killed while it writes.
        "head -c 300 | $NAME \"$@\"; kill -9 $$",
    ];
    for variant in VARIANTS {
        for fault in faults {
            let faulty = FaultyPrograms::new(variant);
            let builder = web_with("10.96.0.10", 3);
            let mut config = fixtures::config();
            config.iptables.nfacct = false;
            Netns::new().expect("a network namespace").run(|| {
                let kernel = |family| faulty.kernel(family);
                let mut proxy = Proxy::start_with_kernels(config.clone(), [], kernel);
                proxy.sync();
                faulty.begin(fault);
                let report = proxy.change(builder.events()).expect("a change is due");
                // Rejected rules are isolated. Every other error is a failure.
                let is_isolated = !report.families[0].rejected.is_empty();
                let errors = report.errors().count();
                assert_eq!(errors, usize::from(!is_isolated), "{fault}: {report}");
                assert_eq!(is_isolated, fault.contains("NO-SUCH-CHAIN"), "{report}");
                faulty.end();
                let report = proxy.sync();
                let outcome = report.families[0]
                    .outcome
                    .as_ref()
                    .expect("the sync succeeds");
                assert!(outcome.dumped, "{report}");
                assert_programmed(&mut proxy.engine, variant, fault);
                assert_restart_writes_nothing(
                    &config,
                    Access::Programs(variant),
                    &builder.events(),
                );
            });
        }
    }
}

#[test]
fn a_change_that_times_out_on_the_xtables_lock_is_applied_later() {
    let faulty = FaultyPrograms::new(Variant::Legacy);
    let builder = web_with("10.96.0.10", 3);
    let mut config = fixtures::config();
    config.iptables.nfacct = false;
    Netns::new().expect("a network namespace").run(|| {
        let kernel = |family| {
            let mut client = faulty.client(family);
            client.set_wait(1);
            Kernel::with_client(client, family)
        };
        let mut proxy = Proxy::start_with_kernels(config.clone(), [], kernel);
        proxy.sync();
        let lock = std::fs::File::open(faulty.programs.lock()).expect("the object exists");
        let operation = rustix::fs::FlockOperation::LockExclusive;
        rustix::fs::flock(&lock, operation).expect("the lock is free");
        let report = proxy.change(builder.events()).expect("a change is due");
        let (_, error) = report.errors().next().expect("the lock is held");
        assert!(error.to_string().contains("lock"), "{error}");
        drop(lock);
        proxy.sync();
        assert_programmed(&mut proxy.engine, Variant::Legacy, "lock");
    });
}

#[test]
fn chains_that_cannot_be_edited_are_rewritten() {
    // The restore program rejects every deletion of a rule.
    let fault = "doc=$(cat); case \"$doc\" in *'\n-D '*) exit 2;; esac; \
                   case \"$doc\" in *-D*) exit 2;; esac; printf '%s\\n' \"$doc\" | $NAME \"$@\"; exit $?";
    for variant in VARIANTS {
        let faulty = FaultyPrograms::new(variant);
        let builder = web_with("10.96.0.10", 3);
        let mut config = fixtures::config();
        config.iptables.nfacct = false;
        Netns::new().expect("a network namespace").run(|| {
            let kernel = |family| faulty.kernel(family);
            let mut proxy = Proxy::start_with_kernels(config.clone(), builder.events(), kernel);
            proxy.sync();
            faulty.begin(fault);
            let gone = Event::ServiceDeleted(builder.service().metadata.object_name());
            let mut new_events = vec![gone];
            // The first attempt edits the known state, the second one follows a dump,
            // and the third one rewrites whole chains.
            for attempt in 0..3 {
                let report = proxy.change(new_events.drain(..)).expect("a sync is due");
                assert_eq!(report.is_success(), attempt == 2, "{attempt}: {report}");
            }
            assert_programmed(&mut proxy.engine, variant, "rewritten");
        });
    }
}
