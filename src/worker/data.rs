//! The data sets that travel within the binary (`assets/data`): real, small, checked when they are read.

use std::io::Read;

use flate2::read::GzDecoder;

use super::error::WorkerError;

const DIGITS: &[u8] = include_bytes!("../../assets/data/digits.csv.gz");
const DIABETES: &[u8] = include_bytes!("../../assets/data/diabetes_data_raw.csv.gz");
const DIABETES_TARGET: &[u8] = include_bytes!("../../assets/data/diabetes_target.csv.gz");

/// 1,797 handwritten digits of 8×8 pixels, 0 to 1.
pub(super) struct Digits {
    /// `[1797][8][8]`.
    pub(super) images: Vec<f32>,
    /// `[1797]`, 0 to 9.
    pub(super) labels: Vec<u8>,
}

/// 442 patients, 10 measurements each.
pub(super) struct Diabetes {
    /// `[442][10]`; each column has mean 0 and (population) variance 1.
    pub(super) features: Vec<f32>,
    /// `[442]`: progression after a year, 25 to 346.
    pub(super) targets: Vec<f32>,
}

/// Pixels of a digit.
pub(super) const PIXELS: usize = 64;
/// Measurements of a patient.
pub(super) const FEATURES: usize = 10;

pub(super) fn digits() -> Result<Digits, WorkerError> {
    let table = table("digits", DIGITS, ',', PIXELS + 1, 1797)?;
    let mut digits = Digits { images: Vec::with_capacity(1797 * PIXELS), labels: Vec::with_capacity(1797) };
    for row in table.chunks_exact(PIXELS + 1) {
        digits.images.extend(row[..PIXELS].iter().map(|ink| (ink / 16.0) as f32));
        if !(0.0..=9.0).contains(&row[PIXELS]) {
            return Err(WorkerError::Data { job: "digits", reason: format!("label {}", row[PIXELS]) });
        }
        digits.labels.push(row[PIXELS] as u8);
    }
    Ok(digits)
}

pub(super) fn diabetes() -> Result<Diabetes, WorkerError> {
    let mut table = table("diabetes", DIABETES, ' ', FEATURES, 442)?;
    for column in 0..FEATURES {
        let values = || table.iter().skip(column).step_by(FEATURES);
        let mean = values().sum::<f64>() / 442.0;
        let deviation = (values().map(|value| (value - mean).powi(2)).sum::<f64>() / 442.0).sqrt();
        table
            .iter_mut()
            .skip(column)
            .step_by(FEATURES)
            .for_each(|value| *value = (*value - mean) / deviation);
    }
    let targets = self::table("diabetes", DIABETES_TARGET, ' ', 1, 442)?;
    let narrow = |values: Vec<f64>| values.into_iter().map(|value| value as f32).collect();
    Ok(Diabetes { features: narrow(table), targets: narrow(targets) })
}

fn table(
    job: &'static str,
    packed: &[u8],
    separator: char,
    columns: usize,
    rows: usize,
) -> Result<Vec<f64>, WorkerError> {
    let damaged = |reason: String| WorkerError::Data { job, reason };
    let mut text = String::new();
    GzDecoder::new(packed).read_to_string(&mut text).map_err(|error| damaged(error.to_string()))?;
    let mut values = Vec::with_capacity(rows * columns);
    for (number, line) in (1..).zip(text.lines()) {
        let before = values.len();
        for field in line.split(separator) {
            values.push(field.trim().parse().map_err(|_| damaged(format!("line {number}: '{field}'")))?);
        }
        if values.len() - before != columns {
            return Err(damaged(format!("line {number} has {} columns", values.len() - before)));
        }
    }
    if values.len() == rows * columns {
        Ok(values)
    } else {
        Err(damaged(format!("{} rows", values.len() / columns)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_digits_are_those_of_the_source() {
        let digits = digits().unwrap();
        let mut counts = [0; 10];
        for label in &digits.labels {
            counts[usize::from(*label)] += 1;
        }
        assert_eq!(counts, [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]);
        assert!(digits.images.iter().all(|ink| (0.0..=1.0).contains(ink)));
    }

    #[test]
    fn the_patients_are_those_of_the_source() {
        let data = diabetes().unwrap();
        let mean = data.targets.iter().map(|v| f64::from(*v)).sum::<f64>() / 442.0;
        assert!((mean - 152.1335).abs() < 1e-4);
        let square: f64 = data.features.iter().map(|v| f64::from(*v).powi(2)).sum();
        assert!((square - 4420.0).abs() < 1e-2);
    }
}
