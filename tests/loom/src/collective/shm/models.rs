//! What ranks do with each other. Each model is one order of its ranks; loom calls it for all of them.

use std::io;
use std::rc::Rc;
use std::sync::Arc;

use loom::sync::atomic::{AtomicBool, Ordering};
use loom::thread;

use super::super::buffer::Memory;
use super::super::deadline::HostTime;
use super::super::element::{DType, Reduce};
use super::super::error::CollectiveError;
use super::super::kernels::Finish;
use super::arena::{Arena, View};
use super::board::{Board, OpDescriptor, PRIVATE};
use super::host::{BarrierError, Host, Look};
use super::machine::{self, CHUNK};
use super::mapping::{Mapping, PAGE};
use super::wait::Patience;

/// Names, how many preemptions each is tried with, and models.
pub(crate) const MODELS: [(&str, usize, fn()); 16] = [
    ("turns", 3, || group(&Setting::of(2), |_, host| turns(host, 3, 8))),
    ("turns-with-values-apart", 2, || group(&Setting::of(2), |_, host| turns(host, 3, 40))),
    ("turns-by-yields", 3, || group(&Setting { yields: 1, ..Setting::of(2) }, |_, host| turns(host, 3, 8))),
    ("turns-by-fences", 3, || {
        group(&Setting { barriers: [false, true, true], ..Setting::of(2) }, |_, host| turns(host, 3, 8))
    }),
    ("turns-of-three", 1, || group(&Setting::of(3), |_, host| turns(host, 3, 8))),
    ("staged-pair", 2, || group(&Setting::of(2), |_, host| staged(host, &[2 * CHUNK + 8, 8]))),
    ("staged-many", 1, || group(&Setting::of(3), |_, host| staged(host, &[CHUNK + 8]))),
    ("staged-many-in-turns", 1, || group(&Setting::of(3), |_, host| staged(host, &[2 * CHUNK + 8]))),
    ("direct", 3, || group(&Setting::of(2), |_, host| direct(host, 2))),
    ("direct-of-three", 1, || group(&Setting::of(3), |_, host| direct(host, 2))),
    ("leader", 3, || group(&Setting::of(2), |_, host| leader(host, 4))),
    ("leader-of-three", 1, || group(&Setting::of(3), |_, host| leader(host, 3))),
    ("death", 3, || death(&Setting { timeouts: true, ..Setting::of(2) }, 1, at_the_barrier)),
    ("death-at-the-barrier", 1, || death(&Setting::of(3), 2, at_the_barrier)),
    ("death-in-an-operation", 1, || death(&Setting::of(3), 2, in_an_operation)),
    ("death-of-the-leader", 3, || death(&Setting::of(2), 0, for_the_leader)),
];

/// Of a model.
#[derive(Clone)]
struct Setting {
    ranks: usize,
    /// Looks with the core given away, before a rank sleeps.
    yields: u32,
    /// Which ranks can have barriers put into them.
    barriers: [bool; 3],
    /// Whether sleep ends by itself, as it does after 20 ms. A wake-up that is lost costs no more than that, so most
    /// models do without: there it is a standstill.
    timeouts: bool,
}

impl Setting {
    fn of(ranks: usize) -> Self {
        Self { ranks, yields: 0, barriers: [true; 3], timeouts: false }
    }
}

/// The bytes of an arena.
const ARENA: usize = 2 * PAGE;
/// The most small bytes of a model.
const MOST: usize = 40;

/// All ranks do `body`, each in a thread of its own.
fn group(setting: &Setting, body: impl Fn(usize, &mut Host) + Clone + 'static) {
    machine::begin(setting.timeouts);
    let arenas: Vec<Arena> = (0..setting.ranks).map(|_| Arena::create(ARENA).unwrap()).collect();
    let board = Board::create(setting.ranks).unwrap();
    prepare(&board, &arenas).unwrap();
    let mut boards: Vec<Option<Board>> = Vec::new();
    let mut views: Vec<Vec<View>> = Vec::new();
    for _ in 0..setting.ranks {
        let board = Board::of(board.file().try_clone().unwrap(), setting.ranks).unwrap();
        // Where not all can have barriers put into them, each rank says so in its own time.
        boards.push(Some(board).filter(|_| setting.barriers.iter().all(|can| *can)));
        views.push(arenas.iter().map(|arena| View::of(Arc::clone(arena.file())).unwrap()).collect());
    }
    machine::prepared();
    let board = Rc::new(board);
    let mut threads = Vec::new();
    for (me, ((own, views), arena)) in boards.into_iter().zip(views).zip(arenas).enumerate().rev() {
        let (setting, body, board) = (setting.clone(), body.clone(), Rc::clone(&board));
        let rank = move || {
            machine::enter(setting.barriers[me]);
            let own =
                own.unwrap_or_else(|| Board::of(board.file().try_clone().unwrap(), setting.ranks).unwrap());
            let patience = Patience { spins: 0, yields: setting.yields, clock: || HostTime(0) };
            body(me, &mut Host::new(own, arena, views, me, patience));
            machine::leave();
        };
        // The first rank is the thread that loom has begun with.
        if me == 0 { rank() } else { threads.push(thread::spawn(rank)) }
    }
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

/// Makes all words and lines that ranks will use, at the values with which they begin.
fn prepare(board: &Board, arenas: &[Arena]) -> io::Result<()> {
    board.wants_fences();
    for rank in 0..arenas.len() {
        for half in 0..2 {
            board.called(rank, half).raise(0, false);
            board.called(rank, half).wake();
            machine::prepare(std::ptr::from_ref(board.called(rank, half)).cast(), 1);
            for bytes in [8, MOST] {
                machine::prepare(board.small(rank, half as u32, bytes), bytes);
            }
            machine::prepare(board.stage(rank, half as usize), CHUNK);
            machine::prepare(board.results(rank, half as usize), CHUNK);
        }
        board.done(rank).raise(0, false);
        board.done(rank).wake();
    }
    board.go().raise(0, false);
    board.go().wake();
    for arena in arenas {
        machine::prepare(Mapping::of(arena.file(), 0, PAGE)?.start().as_ptr(), PAGE);
    }
    Ok(())
}

/// All is well.
struct Well;

impl Look for Well {
    fn look(&mut self, _: &[usize]) -> Result<(), CollectiveError> {
        Ok(())
    }
}

/// What `rank` brings to a step.
fn value(rank: usize, step: u32) -> u8 {
    (7 * (rank + 1) + 50 * step as usize) as u8
}

fn sum(ranks: usize, step: u32) -> u8 {
    (0..ranks).fold(0, |sum, rank| sum.wrapping_add(value(rank, step)))
}

fn barrier(host: &mut Host, step: u32, small: &[u8], look: &mut dyn Look) -> Result<(), BarrierError> {
    let descriptor = OpDescriptor { kind: u64::from(step), len: small.len() as u64, place: PRIVATE };
    host.barrier(descriptor, small, look)
}

/// Small values travel with each barrier.
fn turns(host: &mut Host, steps: u32, bytes: usize) {
    for step in 1..=steps {
        let (own, mut all) = ([value(host.me(), step); MOST], [0; MOST]);
        barrier(host, step, &own[..bytes], &mut Well).unwrap();
        host.reduce_small((DType, Reduce), Finish, &mut all[..bytes], 0, bytes);
        assert!(all[..bytes].iter().all(|one| *one == sum(host.ranks(), step)));
    }
}

/// Values in memory of the rank's own are carried over the board.
fn staged(host: &mut Host, lengths: &[usize]) {
    for (step, bytes) in (1..).zip(lengths) {
        let mut values = vec![value(host.me(), step); *bytes];
        barrier(host, step, &[], &mut Well).unwrap();
        host.allreduce_staged((DType, Reduce), Finish, &mut values, &mut Well).unwrap();
        assert!(values.iter().all(|one| *one == sum(host.ranks(), step)));
    }
}

/// Values in arenas: each rank adds its part of all of them.
fn direct(host: &mut Host, steps: u32) {
    let bytes = 128 * host.ranks();
    let block = host.allocate(bytes).unwrap();
    let start = block.start().as_ptr();
    for step in 1..=steps {
        let own = vec![value(host.me(), step); bytes];
        copy(own.as_ptr(), start, bytes);
        let descriptor =
            OpDescriptor { kind: u64::from(step), len: bytes as u64, place: host.place_of(start, bytes) };
        host.barrier(descriptor, &[], &mut Well).unwrap();
        assert!(host.locate(start, bytes).unwrap());
        host.allreduce_direct((DType, Reduce), Finish, bytes, &mut Well).unwrap();
        let mut all = vec![0; bytes];
        copy(start, all.as_mut_ptr(), bytes);
        assert!(all.iter().all(|one| *one == sum(host.ranks(), step)));
    }
}

/// A leader has something for the others after each barrier.
fn leader(host: &mut Host, steps: u32) {
    for step in 1..=steps {
        barrier(host, step, &[], &mut Well).unwrap();
        let mut news = [value(0, step); 8];
        if host.me() == 0 {
            host.let_go(&news);
        } else {
            news = [0; 8];
            host.wait_for_go(&mut news, &mut Well).unwrap();
        }
        assert_eq!(news, [value(0, step); 8]);
    }
}

#[expect(unsafe_code, reason = "a rank's own values in its arena")]
fn copy(from: *const u8, to: *mut u8, bytes: usize) {
    // SAFETY: of as many bytes each; loom's threads run one at a time.
    unsafe { machine::copy(from, to, bytes) };
}

/// The lock of the rank that dies, as the others see it.
struct Life(Arc<AtomicBool>);

impl Look for Life {
    fn look(&mut self, _: &[usize]) -> Result<(), CollectiveError> {
        if self.0.load(Ordering::Acquire) { Err(CollectiveError) } else { Ok(()) }
    }
}

/// One rank fails when all others have come to wait for it: where no sleep ends by itself, only when they sleep. All of them
/// must learn of it. Which one it is: the leader, where the others wait for that.
fn death(setting: &Setting, dies: usize, wait: fn(&mut Host, &mut dyn Look) -> Result<(), BarrierError>) {
    let over = Arc::new(AtomicBool::new(false));
    let (timeouts, others) = (setting.timeouts, setting.ranks - 1);
    group(setting, move |me, host| {
        if me != dies {
            assert!(matches!(
                wait(host, &mut Life(Arc::clone(&over))),
                Err(BarrierError::Failed(CollectiveError))
            ));
            return;
        }
        if dies == 0 {
            barrier(host, 1, &[], &mut Well).unwrap();
        }
        if !timeouts {
            machine::until_asleep(others);
        }
        // what the engine does after an error
        over.store(true, Ordering::Release);
        host.wake_all();
    });
}

fn at_the_barrier(host: &mut Host, look: &mut dyn Look) -> Result<(), BarrierError> {
    barrier(host, 1, &[], look)
}

fn in_an_operation(host: &mut Host, look: &mut dyn Look) -> Result<(), BarrierError> {
    host.sync(look).map_err(BarrierError::Failed)
}

fn for_the_leader(host: &mut Host, look: &mut dyn Look) -> Result<(), BarrierError> {
    barrier(host, 1, &[], &mut Well).unwrap();
    host.wait_for_go(&mut [], look).map_err(BarrierError::Failed)
}
