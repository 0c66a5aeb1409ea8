//! Which way the GPUs' values go: decided by every rank from the same facts. Pure.

use super::library::version_text;

/// What one rank knows of itself; as it travels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Facts {
    /// Its NCCL's version as NCCL counts; 0: it has none.
    pub(super) nccl: i64,
    /// Its GPU.
    pub(super) gpu: [i64; 2],
    /// Whether it was told to go by the host's memory.
    pub(super) staging: bool,
}

/// Numbers that the facts of a rank travel as.
pub(super) const NUMBERS: usize = 4;

impl Facts {
    pub(super) fn numbers(self) -> [i64; NUMBERS] {
        [self.nccl, self.gpu[0], self.gpu[1], self.staging.into()]
    }

    fn from_numbers(numbers: [i64; NUMBERS]) -> Self {
        let [nccl, high, low, staging] = numbers;
        Self { nccl, gpu: [high, low], staging: staging != 0 }
    }
}

/// The facts of all ranks from what an allgather brought.
pub(super) fn table(numbers: &[i64]) -> Vec<Facts> {
    let (rows, _) = numbers.as_chunks::<NUMBERS>();
    rows.iter().map(|row| Facts::from_numbers(*row)).collect()
}

/// `Ok` when all ranks can use NCCL; else why they go by the host's memory, in words for people.
pub(super) fn nccl_or_why_not(ranks: &[Facts]) -> Result<(), String> {
    if let Some(rank) = ranks.iter().position(|one| one.staging) {
        return Err(format!("rank {rank} was told to go by the host's memory"));
    }
    if let Some(rank) = ranks.iter().position(|one| one.nccl == 0) {
        return Err(format!("rank {rank} has no usable NCCL; its log says why"));
    }
    for (rank, one) in ranks.iter().enumerate() {
        if let Some(other) = ranks[..rank].iter().position(|two| two.gpu == one.gpu) {
            return Err(format!("ranks {other} and {rank} share a GPU, which NCCL refuses"));
        }
        // Versions promise to talk to each other within a minor version only.
        if one.nccl / 100 != ranks[0].nccl / 100 {
            let text = |nccl: i64| version_text(i32::try_from(nccl).unwrap_or(0));
            return Err(format!(
                "rank 0 has NCCL {} and rank {rank} {}: all need the same",
                text(ranks[0].nccl),
                text(one.nccl)
            ));
        }
    }
    Ok(())
}

/// The ranks whose mark is 0: those that could not join.
pub(super) fn failed(marks: &[i64]) -> Vec<usize> {
    marks.iter().enumerate().filter(|(_, mark)| **mark == 0).map(|(rank, _)| rank).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(gpu: i64) -> Facts {
        Facts { nccl: 22_705, gpu: [7, gpu], staging: false }
    }

    fn why(ranks: &[Facts]) -> String {
        nccl_or_why_not(ranks).unwrap_err()
    }

    #[test]
    fn nccl_needs_a_card_and_the_same_library_for_each_rank() {
        let patch = Facts { nccl: 22_703, ..facts(2) };
        assert_eq!(nccl_or_why_not(&[facts(1), patch, facts(3)]), Ok(()));
        assert_eq!(why(&[facts(1), facts(2), facts(1)]), "ranks 0 and 2 share a GPU, which NCCL refuses");
        assert_eq!(
            why(&[facts(1), Facts { nccl: 23_203, ..facts(2) }]),
            "rank 0 has NCCL 2.27.5 and rank 1 2.32.3: all need the same"
        );
        assert_eq!(
            why(&[facts(1), Facts { nccl: 0, ..facts(2) }]),
            "rank 1 has no usable NCCL; its log says why"
        );
        assert_eq!(
            why(&[Facts { staging: true, ..facts(1) }, facts(2)]),
            "rank 0 was told to go by the host's memory"
        );
    }

    #[test]
    fn facts_survive_the_way() {
        let ranks = [facts(-1), Facts { staging: true, ..facts(i64::MIN) }];
        let numbers: Vec<i64> = ranks.iter().flat_map(|one| one.numbers()).collect();
        assert_eq!(table(&numbers), ranks);
        assert_eq!(failed(&[1, 0, 1, 0]), [1, 3]);
    }
}
