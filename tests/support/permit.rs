//! Whether the tests of a program run one at a time, each with the machine to itself, or in parallel.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

static MACHINE: Mutex<()> = Mutex::new(());
static IS_SHARED: AtomicBool = AtomicBool::new(false);

/// Waits until the test may load the machine; returns `None` at once if tests run in parallel.
pub fn permit() -> Option<MutexGuard<'static, ()>> {
    let is_alone = !IS_SHARED.load(Ordering::Relaxed);
    is_alone.then(|| MACHINE.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Lets this number of tests of the program run in parallel. Use it once per test program, at its top.
#[macro_export]
macro_rules! share_the_machine {
    ($tests:literal) => {
        #[used]
        #[unsafe(link_section = ".init_array")]
        static BEFORE_MAIN: extern "C" fn() = {
            extern "C" fn before_main() {
                $crate::support::permit::share_the_machine($tests);
            }
            before_main
        };
    };
}

/// Called before `main` by the macro of this name.
pub fn share_the_machine(tests: u32) {
    IS_SHARED.store(true, Ordering::Relaxed);
    benchmesh_testing::set_tests_at_once(tests);
}
