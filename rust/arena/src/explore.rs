//! For tests of this crate: all interleavings of a few threads, with a kill at every store of each.
//!
//! The code under test is the shipped code. It calls [`step`], which does nothing in production,
//! wherever threads can see one another: locks, guards, stores to the arena. A [`Schedule`] lets
//! one thread run at a time, decides at each step which one goes on, and tries all decisions in
//! turn. It bounds the interruptions of threads that could go on: two find nearly every fault that
//! any number finds (Musuvathi and Qadeer, PLDI 2007). The exploration is sequentially consistent:
//! guards are, and everything else is handed over under locks.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// A fault planted into the code, to see that it is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// A reclaimed chunk is free although guards are left that saw it.
    GuardsNotAwaited,
    /// A guard is left as soon as it is entered.
    GuardLeftEarly,
    /// A chunk with unwritten bytes is reclaimed.
    UnwrittenReclaimed,
    /// The committed length is stored before the bytes.
    CommittedFirst,
    /// A block's state is stored before its fields.
    StateFirst,
    /// Blocks of any generation count.
    GenerationIgnored,
    /// What was reclaimed can still be found.
    ReclaimedFound,
    /// A chunk whose memory is being given back can still be carved.
    GivenBackStillFree,
}

pub(crate) type Body = Box<dyn FnOnce() + Send>;
/// What must hold after each store of any thread, since a kill may come there. It takes no lock of
/// the code under test.
pub(crate) type Invariant = Box<dyn Fn() -> Result<(), String> + Send + Sync>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Status {
    Ready,
    /// Waits for the lock at this address.
    Blocked(usize),
    Done,
}

/// One decision: the threads that could go on, in the order of the tries, and the one that does.
#[derive(Clone, Debug)]
struct Choice {
    options: Vec<usize>,
    taken: usize,
}

struct State {
    current: usize,
    status: Vec<Status>,
    trace: Vec<Choice>,
    plan: Vec<usize>,
    interruptions: usize,
    failure: Option<String>,
}

struct Run {
    state: Mutex<State>,
    turn: Condvar,
    invariant: Invariant,
    fault: Option<Fault>,
    interruptions_max: usize,
}

thread_local! {
    static ME: RefCell<Option<(Arc<Run>, usize)>> = const { RefCell::new(None) };
}

fn me() -> Option<(Arc<Run>, usize)> {
    ME.with(|me| me.borrow().clone())
}

/// Other threads may run here.
pub(crate) fn step() {
    if let Some((run, index)) = me() {
        run.decide(index, Status::Ready);
    }
}

/// The number of this thread, the same in each run.
pub(crate) fn number() -> Option<usize> {
    me().map(|(_, index)| index)
}

/// A store to the arena is done: checks what a kill would leave.
pub(crate) fn stored() {
    if let Some((run, _)) = me() {
        run.check_kill();
    }
}

pub(crate) fn has(fault: Fault) -> bool {
    me().is_some_and(|(run, _)| run.fault == Some(fault))
}

impl Run {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn check_kill(&self) {
        {
            let state = self.lock();
            // Before the plan's last decision, the run equals the one before.
            if state.trace.len() < state.plan.len() || state.failure.is_some() {
                return;
            }
        }
        if let Err(what) = (self.invariant)() {
            self.lock().failure.get_or_insert(what);
        }
    }

    /// `index` has come to a step or cannot go on. Chooses the next thread.
    fn decide(&self, index: usize, status: Status) {
        let mut state = self.lock();
        if std::thread::panicking() {
            return;
        }
        state.status[index] = status;
        self.next(&mut state, index);
        self.turn.notify_all();
        while status != Status::Done && state.current != index && state.failure.is_none() {
            state = self.turn.wait(state).expect("nobody panics with it");
        }
        let has_failed = state.failure.is_some();
        drop(state);
        if has_failed && status != Status::Done {
            std::panic::resume_unwind(Box::new(Over));
        }
    }

    fn next(&self, state: &mut State, index: usize) {
        let is_able = state.status[index] == Status::Ready;
        let mut options: Vec<usize> = (0..state.status.len())
            .filter(|i| *i != index && state.status[*i] == Status::Ready)
            .collect();
        if is_able && state.interruptions >= self.interruptions_max {
            options.clear();
        }
        if is_able {
            options.insert(0, index);
        }
        if options.is_empty() {
            if state.status.iter().any(|one| *one != Status::Done) {
                state.failure.get_or_insert("a deadlock".to_owned());
            }
            return;
        }
        let taken = state.plan.get(state.trace.len()).copied().unwrap_or(0);
        state.current = options[taken];
        state.interruptions += usize::from(is_able && state.current != index);
        state.trace.push(Choice { options, taken });
    }
}

/// The panic payload that ends the threads of a failed run.
struct Over;

pub(crate) struct Schedule {
    /// How often a thread that could go on is interrupted.
    pub interruptions_max: usize,
    pub fault: Option<Fault>,
}

impl Schedule {
    /// Runs the threads that `make` sets up anew each time, in every order. Returns the number of
    /// orders, or the first failure.
    pub fn explore(&self, make: impl Fn() -> (Vec<Body>, Invariant)) -> Result<usize, String> {
        let mut plan = Vec::new();
        for count in 1.. {
            let (bodies, invariant) = make();
            let mut trace = self.run(bodies, invariant, plan)?;
            while trace
                .last()
                .is_some_and(|last| last.taken + 1 == last.options.len())
            {
                trace.pop();
            }
            let Some(last) = trace.last_mut() else {
                return Ok(count);
            };
            last.taken += 1;
            plan = trace.iter().map(|choice| choice.taken).collect();
        }
        unreachable!("the count has no end")
    }

    fn run(
        &self,
        bodies: Vec<Body>,
        invariant: Invariant,
        plan: Vec<usize>,
    ) -> Result<Vec<Choice>, String> {
        let run = Arc::new(Run {
            state: Mutex::new(State {
                current: usize::MAX,
                status: vec![Status::Ready; bodies.len()],
                trace: Vec::new(),
                plan,
                interruptions: 0,
                failure: None,
            }),
            turn: Condvar::new(),
            invariant,
            fault: self.fault,
            interruptions_max: self.interruptions_max,
        });
        std::thread::scope(|scope| {
            for (index, body) in bodies.into_iter().enumerate() {
                let run = Arc::clone(&run);
                scope.spawn(move || live(&run, index, body));
            }
            run.lock().current = 0;
            run.turn.notify_all();
        });
        let mut state = run.lock();
        match state.failure.take() {
            Some(failure) => Err(failure),
            None => Ok(std::mem::take(&mut state.trace)),
        }
    }
}

fn live(run: &Arc<Run>, index: usize, body: Body) {
    {
        let mut state = run.lock();
        while state.current != index && state.failure.is_none() {
            state = run.turn.wait(state).expect("nobody panics with it");
        }
        if state.failure.is_some() {
            return;
        }
    }
    ME.with(|me| *me.borrow_mut() = Some((Arc::clone(run), index)));
    let ended = catch_unwind(AssertUnwindSafe(|| {
        step();
        body();
    }));
    ME.with(|me| *me.borrow_mut() = None);
    if let Err(panic) = ended
        && !panic.is::<Over>()
    {
        let what = panic.downcast_ref::<String>().cloned();
        let what = what.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        run.lock().failure.get_or_insert(what.unwrap_or_default());
    }
    run.decide(index, Status::Done);
}

/// A lock whose taking is a step, and at which threads wait as the schedule wants.
#[derive(Debug, Default)]
pub(crate) struct SteppedMutex<T>(parking_lot::Mutex<T>);

pub(crate) struct SteppedGuard<'a, T> {
    inner: Option<parking_lot::MutexGuard<'a, T>>,
    address: usize,
}

impl<T> SteppedMutex<T> {
    pub fn new(value: T) -> SteppedMutex<T> {
        SteppedMutex(parking_lot::Mutex::new(value))
    }

    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    pub fn lock(&self) -> SteppedGuard<'_, T> {
        let Some((run, index)) = me() else {
            return self.guard(self.0.lock());
        };
        run.decide(index, Status::Ready);
        loop {
            if let Some(inner) = self.0.try_lock() {
                return self.guard(inner);
            }
            run.decide(index, Status::Blocked(self.address()));
        }
    }

    pub fn try_lock(&self) -> Option<SteppedGuard<'_, T>> {
        step();
        self.0.try_lock().map(|inner| self.guard(inner))
    }

    fn guard<'a>(&self, inner: parking_lot::MutexGuard<'a, T>) -> SteppedGuard<'a, T> {
        SteppedGuard {
            inner: Some(inner),
            address: self.address(),
        }
    }
}

impl<T> std::ops::Deref for SteppedGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        self.inner.as_ref().expect("held")
    }
}

impl<T> std::ops::DerefMut for SteppedGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.inner.as_mut().expect("held")
    }
}

impl<T> Drop for SteppedGuard<'_, T> {
    fn drop(&mut self) {
        self.inner = None;
        if let Some((run, _)) = me() {
            let blocked = Status::Blocked(self.address);
            for status in &mut run.lock().status {
                if *status == blocked {
                    *status = Status::Ready;
                }
            }
        }
    }
}
