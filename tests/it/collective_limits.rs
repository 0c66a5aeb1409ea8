//! Ranks under limits: of addresses and of open files.

use crate::common::rank_processes::{Ranks, WAYS, Ways};

/// A deadline that no test reaches.
const LONG: u64 = 60_000;

#[test]
fn ranks_start_and_share_memory_where_they_may_map_less_than_the_host_has() {
    for ways in WAYS {
        // 400 MiB of addresses; no host with less memory than that runs these tests.
        let ranks = Ranks::start_under(
            4,
            LONG,
            ways,
            |_| "-v 409600",
            |_| Some("tell,barrier,all:300000,registered:1000000,registered:10".to_owned()),
        );
        for rank in 0..4 {
            ranks.done(rank);
            let transport = match ways {
                Ways::OneHost => "shm",
                Ways::Tcp => "tcp",
                Ways::Mixed => "shm+tcp",
            };
            assert_eq!(ranks.line(rank, "told").as_deref(), Some(transport));
            assert_eq!(ranks.line(rank, "apart"), None);
        }
        ranks.end(None);
    }
}

#[test]
fn a_buffer_that_can_not_be_mapped_is_refused_with_the_reason() {
    let ranks = Ranks::start_under(
        2,
        LONG,
        Ways::OneHost,
        |_| "-v 409600",
        |_| Some("barrier,registered:200000000".to_owned()),
    );
    for rank in 0..2 {
        let error = ranks.failure(rank).error;
        assert!(error.starts_with(&format!("rank {rank}: reserve shared memory: ")), "{error}");
        assert!(error.contains("can't be mapped") && error.contains("ulimit -v"), "{error}");
    }
    ranks.end(None);
}

#[test]
fn who_can_not_take_the_memory_of_its_host_leads_to_tcp_with_the_reason() {
    // Rank 2 may open too few files for the memory of all, and enough for its connections.
    let ranks = Ranks::start_under(
        3,
        LONG,
        Ways::OneHost,
        |rank| if rank == 2 { "-n 11" } else { "" },
        |_| Some("tell,barrier,all:10,all:300000".to_owned()),
    );
    for rank in 0..3 {
        ranks.done(rank);
        assert_eq!(ranks.line(rank, "told").as_deref(), Some("tcp"));
        let why = ranks.line(rank, "apart").unwrap();
        assert!(why.contains("not all memory came") && why.contains("ulimit -n"), "{why}");
        assert_eq!(why.starts_with("rank 2: "), rank < 2, "rank {rank}: {why}");
    }
    ranks.end(None);
}
