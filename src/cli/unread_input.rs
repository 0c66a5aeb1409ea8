//! Standard input of a launch: ranks do not get it, and that is said where something stands on it.

use std::io;
use std::os::fd::AsFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, fstat};

/// How long a pipe may take to have something in it: the program before it is started beside this one.
const PATIENCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

/// What to say where something stands on standard input; reads nothing of it.
pub(super) fn remark() -> Option<String> {
    let remark = "ranks do not get what stands on standard input: they read its end at once; let the command read a file \
                  of its host (`sh -c '… < FILE'`)";
    holds_something(io::stdin()).unwrap_or(false).then(|| remark.to_owned())
}

fn holds_something(input: impl AsFd) -> io::Result<bool> {
    let found = fstat(&input)?;
    match FileType::from_raw_mode(found.st_mode) {
        FileType::RegularFile => Ok(rustix::fs::tell(&input)? < found.st_size.unsigned_abs()),
        FileType::Fifo => {
            let mut polled = [PollFd::new(&input, PollFlags::IN)];
            poll(&mut polled, Some(&PATIENCE))?;
            Ok(rustix::io::ioctl_fionread(&input)? > 0)
        }
        _ => Ok(false),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{Seek, SeekFrom, Write};

    use super::*;

    #[test]
    fn a_pipe_or_a_file_with_something_in_it_is_told() {
        let (reader, mut writer) = io::pipe().unwrap();
        assert!(!holds_something(&reader).unwrap(), "nothing yet");
        writer.write_all(b"hello\n").unwrap();
        assert!(holds_something(&reader).unwrap());
        drop(writer);
        assert!(holds_something(&reader).unwrap());
        let (reader, _) = io::pipe().unwrap();
        assert!(!holds_something(&reader).unwrap(), "its end alone");
        assert!(!holds_something(File::open("/dev/null").unwrap()).unwrap());
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"a list of hosts").unwrap();
        assert!(!holds_something(&file).unwrap(), "it is read to its end");
        file.seek(SeekFrom::Start(0)).unwrap();
        assert!(holds_something(&file).unwrap());
    }
}
