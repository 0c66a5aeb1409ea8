//! Keras' `mnist.npz`: a zip of four `.npy` arrays, stored or deflated.

use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use zip::ZipArchive;
use zip::result::ZipError;

use super::error::MnistError;
use super::idx::Kind;
use super::{Mnist, array, npy};

/// The longest file that is read: what the most images take, and room for what else may be in it.
const LONGEST: u64 = 1 << 28;

/// The data set of a file, by Keras' names.
pub fn read_npz(path: &Path, mut file: impl Read + Seek) -> Result<Mnist, MnistError> {
    let place = path.display().to_string();
    let fault = |source| MnistError::Open { path: path.to_owned(), source };
    let len = file.seek(SeekFrom::End(0)).map_err(fault)?;
    if len > LONGEST {
        return Err(MnistError::damaged(&place, format!("is {len} bytes long; at most {LONGEST} are read")));
    }
    let mut archive = ZipArchive::new(file).map_err(|error| MnistError::damaged(&place, said(&error)))?;
    let name = |array: &str| format!("{place}, {array}.npy");
    let mut read = |array: &str, kind| {
        let place = name(array);
        let damaged = |error: ZipError| MnistError::damaged(&place, said(&error));
        let mut member = archive.by_name(&format!("{array}.npy")).map_err(damaged)?;
        // Both are the file's own word.
        let most = member.compressed_size().min(len).saturating_mul(array::DEFLATE).min(member.size());
        npy::read_npy(&place, kind, most, &mut member)
    };
    let training = (read("x_train", Kind::Images)?, read("y_train", Kind::Labels)?);
    let held_out = (read("x_test", Kind::Images)?, read("y_test", Kind::Labels)?);
    let names = [["x_train", "y_train"], ["x_test", "y_test"]].map(|pair| pair.map(name));
    Mnist::new(path, [training, held_out], names)
}

fn said(error: &ZipError) -> String {
    match error {
        ZipError::FileNotFound => "is not in the archive".to_owned(),
        other => other.to_string(),
    }
}
