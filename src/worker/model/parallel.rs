//! Work on independent pieces by a fixed number of threads. Which thread does which piece never shows in the result.

/// Calls `work` once for each piece, with the scratch space of the thread that does it. The calling thread is one of
/// the `scratch.len()` threads.
pub fn for_each<S: Send, P: Send>(scratch: &mut [S], pieces: Vec<P>, work: impl Fn(&mut S, P) + Sync) {
    let share = pieces.len().div_ceil(scratch.len().max(1)).max(1);
    let mut pieces = pieces.into_iter();
    let mut shares: Vec<(&mut S, Vec<P>)> =
        scratch.iter_mut().map(|scratch| (scratch, pieces.by_ref().take(share).collect())).collect();
    let work = &work;
    let run = move |(scratch, pieces): (&mut S, Vec<P>)| {
        for piece in pieces {
            work(scratch, piece);
        }
    };
    std::thread::scope(|scope| {
        let own = shares.pop();
        for share in shares {
            scope.spawn(move || run(share));
        }
        own.into_iter().for_each(run);
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_piece_is_done_once() {
        for threads in 1..5 {
            for count in [0, 1, 3, 17] {
                let mut data = vec![0; count];
                for_each(&mut vec![(); threads], data.iter_mut().collect(), |(), value: &mut i32| {
                    *value += 1;
                });
                assert!(data.iter().all(|value| *value == 1), "{threads} {count}");
            }
        }
    }
}
