//! Which sizes are measured. Pure.

/// `8`, `64K`, `1M`, `2GiB`: bytes.
pub fn bytes(text: &str) -> Result<usize, String> {
    let wrong = || format!("'{text}' is no size; write 8, 32K, 64M or 1G");
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let shift = match unit.to_ascii_uppercase().as_str() {
        "" | "B" => 0,
        "K" | "KB" | "KIB" => 10,
        "M" | "MB" | "MIB" => 20,
        "G" | "GB" | "GIB" => 30,
        _ => return Err(wrong()),
    };
    let number: usize = number.parse().map_err(|_| wrong())?;
    number.checked_mul(1 << shift).filter(|bytes| *bytes > 0).ok_or_else(wrong)
}

/// From `begin` to `end`, each `factor` times the one before.
pub fn steps(begin: usize, end: usize, factor: usize) -> Vec<usize> {
    let next = |size: &usize| size.checked_mul(factor.max(2));
    std::iter::successors(Some(begin), next).take_while(|size| *size <= end).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_people_write_them() {
        let read = ["8", "4B", "32k", "1M", "2GiB"].map(bytes);
        assert_eq!(read, [8, 4, 32 << 10, 1 << 20, 2 << 30].map(Ok));
        for text in ["", "0", "K", "1T", "-1", "1.5M", "99999999999G"] {
            assert!(bytes(text).is_err(), "{text}");
        }
    }

    #[test]
    fn steps_end_at_the_end() {
        assert_eq!(steps(8, 64, 2), [8, 16, 32, 64]);
        assert_eq!(steps(8, 63, 4), [8, 32]);
        assert_eq!(steps(usize::MAX, usize::MAX, 2), [usize::MAX]);
        assert!(steps(9, 8, 2).is_empty());
    }
}
