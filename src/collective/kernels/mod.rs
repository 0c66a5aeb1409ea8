//! Adding many sources into many targets: the loops that read and write every byte.
