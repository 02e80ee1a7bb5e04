//! The GGUF container: header, metadata and tensor table; no tensor data and no meaning.
//!
//! Every length the file declares is checked against the bytes it has left before anything of that
//! length is allocated, so a damaged or hostile file costs an error that names the field.

use std::collections::BTreeMap;
use std::io::{self, Read};

/// Bits of nesting and dimensions beyond what any writer produces are refused.
const MAX_DIMENSIONS: u32 = 4;
/// Where tensor data starts unless `general.alignment` says otherwise.
const DEFAULT_ALIGNMENT: u64 = 32;
/// The largest alignment believed.
const MAX_ALIGNMENT: u64 = 1 << 20;

/// A metadata value, in as few kinds as its readers need.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Value {
    Unsigned(u64),
    Signed(i64),
    Float(f64),
    Bool(bool),
    Text(String),
    Texts(Vec<String>),
    Integers(Vec<i64>),
    Floats(Vec<f64>),
    /// Arrays nobody here reads (of booleans), skipped.
    Skipped,
}

/// A row of the tensor table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TensorEntry {
    /// Outermost dimension first, the reverse of the file's order.
    pub(super) dims: Vec<usize>,
    /// GGML's number of the tensor's type.
    pub(super) kind: u32,
    /// Where its data starts, from the start of the data section.
    pub(super) offset: u64,
}

/// What stands before the tensor data.
#[derive(Debug)]
pub(super) struct Container {
    pub(super) metadata: BTreeMap<String, Value>,
    pub(super) tensors: BTreeMap<String, TensorEntry>,
    /// Where the data section starts in the file.
    pub(super) data_start: u64,
}

/// Why a container could not be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum ContainerError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("{0}")]
    Damaged(String),
}

fn damaged<T>(problem: impl Into<String>) -> Result<T, ContainerError> {
    Err(ContainerError::Damaged(problem.into()))
}

impl Container {
    /// Reads a container of a file that is `size` bytes long.
    pub(super) fn read(reader: impl Read, size: u64) -> Result<Self, ContainerError> {
        let mut bytes = Bytes { reader, left: size };
        let magic: [u8; 4] = bytes.array("the magic number")?;
        if &magic != b"GGUF" {
            return damaged(format!("it starts with {magic:02x?} where a GGUF file has \"GGUF\""));
        }
        let version = bytes.u32("the version")?;
        if version != 2 && version != 3 {
            return damaged(format!(
                "GGUF version {version} is not supported, only 2 and 3; convert it anew"
            ));
        }
        let tensor_count = bytes.u64("the tensor count")?;
        let entry_count = bytes.u64("the metadata count")?;
        // The smallest row of each table: an empty name and the shortest rest.
        bytes.expect("the tensor table", tensor_count, 8 + 4 + 4 + 8)?;
        bytes.expect("the metadata", entry_count, 8 + 4 + 1)?;
        let mut metadata = BTreeMap::new();
        for _ in 0..entry_count {
            let key = bytes.text("a metadata key")?;
            let value = bytes.value(&key)?;
            if metadata.insert(key.clone(), value).is_some() {
                return damaged(format!("metadata key {key} appears twice"));
            }
        }
        let mut tensors = BTreeMap::new();
        for _ in 0..tensor_count {
            let name = bytes.text("a tensor name")?;
            let entry = bytes.tensor(&name)?;
            if tensors.insert(name.clone(), entry).is_some() {
                return damaged(format!("tensor {name} appears twice"));
            }
        }
        let alignment = match metadata.get("general.alignment") {
            None => DEFAULT_ALIGNMENT,
            Some(Value::Unsigned(a)) if a.is_power_of_two() && *a <= MAX_ALIGNMENT => *a,
            Some(other) => return damaged(format!("general.alignment is {other:?}, which is no alignment")),
        };
        let data_start = (size - bytes.left).next_multiple_of(alignment);
        Ok(Self { metadata, tensors, data_start })
    }
}

/// A reader that knows how much the file has left.
struct Bytes<R> {
    reader: R,
    left: u64,
}

impl<R: Read> Bytes<R> {
    /// Checks that `count` items of at least `each` bytes can still come.
    fn expect(&self, what: &str, count: u64, each: u64) -> Result<(), ContainerError> {
        match count.checked_mul(each) {
            Some(needed) if needed <= self.left => Ok(()),
            _ => damaged(format!(
                "{what} should hold {count} items of {each} bytes or more, and only {} bytes are left",
                self.left
            )),
        }
    }

    fn array<const N: usize>(&mut self, what: &str) -> Result<[u8; N], ContainerError> {
        self.expect(what, N as u64, 1)?;
        let mut out = [0; N];
        self.reader.read_exact(&mut out)?;
        self.left -= N as u64;
        Ok(out)
    }

    fn u32(&mut self, what: &str) -> Result<u32, ContainerError> {
        self.array(what).map(u32::from_le_bytes)
    }

    fn u64(&mut self, what: &str) -> Result<u64, ContainerError> {
        self.array(what).map(u64::from_le_bytes)
    }

    fn text(&mut self, what: &str) -> Result<String, ContainerError> {
        let length = self.u64(what)?;
        self.expect(what, length, 1)?;
        let Ok(length) = usize::try_from(length) else {
            return damaged(format!("{what} is {length} bytes long"));
        };
        let mut out = vec![0; length];
        self.reader.read_exact(&mut out)?;
        self.left -= length as u64;
        // Some writers cut a text within a character; what matters is compared as a whole anyway.
        Ok(String::from_utf8(out).unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into_owned()))
    }

    fn tensor(&mut self, name: &str) -> Result<TensorEntry, ContainerError> {
        let what = format!("the table row of tensor {name}");
        let count = self.u32(&what)?;
        if count > MAX_DIMENSIONS {
            return damaged(format!("tensor {name} has {count} dimensions, above {MAX_DIMENSIONS}"));
        }
        let mut dims = Vec::new();
        for _ in 0..count {
            let dim = self.u64(&what)?;
            let Ok(dim) = usize::try_from(dim) else {
                return damaged(format!("tensor {name} has a dimension of {dim}"));
            };
            dims.insert(0, dim);
        }
        Ok(TensorEntry { dims, kind: self.u32(&what)?, offset: self.u64(&what)? })
    }

    fn value(&mut self, key: &str) -> Result<Value, ContainerError> {
        let kind = self.u32(key)?;
        match kind {
            8 => Ok(Value::Text(self.text(key)?)),
            9 => self.array_value(key),
            _ => self.scalar(key, kind),
        }
    }

    fn scalar(&mut self, key: &str, kind: u32) -> Result<Value, ContainerError> {
        Ok(match kind {
            0 => Value::Unsigned(u8::from_le_bytes(self.array(key)?).into()),
            1 => Value::Signed(i8::from_le_bytes(self.array(key)?).into()),
            2 => Value::Unsigned(u16::from_le_bytes(self.array(key)?).into()),
            3 => Value::Signed(i16::from_le_bytes(self.array(key)?).into()),
            4 => Value::Unsigned(self.u32(key)?.into()),
            5 => Value::Signed(i32::from_le_bytes(self.array(key)?).into()),
            6 => Value::Float(f32::from_le_bytes(self.array(key)?).into()),
            7 => Value::Bool(self.array::<1>(key)? != [0]),
            10 => Value::Unsigned(self.u64(key)?),
            11 => Value::Signed(i64::from_le_bytes(self.array(key)?)),
            12 => Value::Float(f64::from_le_bytes(self.array(key)?)),
            _ => return damaged(format!("metadata key {key} has the unknown value type {kind}")),
        })
    }

    fn array_value(&mut self, key: &str) -> Result<Value, ContainerError> {
        let kind = self.u32(key)?;
        let count = self.u64(key)?;
        let Some(each) = smallest(kind) else {
            return damaged(format!("metadata key {key} is an array of the unsupported value type {kind}"));
        };
        self.expect(key, count, each)?;
        if kind == 8 {
            return (0..count).map(|_| self.text(key)).collect::<Result<_, _>>().map(Value::Texts);
        }
        let (mut integers, mut floats) = (Vec::new(), Vec::new());
        for _ in 0..count {
            match self.scalar(key, kind)? {
                Value::Signed(v) => integers.push(v),
                Value::Unsigned(v) => integers.push(i64::try_from(v).unwrap_or(i64::MAX)),
                Value::Float(v) => floats.push(v),
                _ => {}
            }
        }
        Ok(if integers.len() as u64 == count {
            Value::Integers(integers)
        } else if floats.len() as u64 == count {
            Value::Floats(floats)
        } else {
            Value::Skipped
        })
    }
}

/// Bytes the smallest value of a type takes; `None` for arrays and unknown types.
fn smallest(kind: u32) -> Option<u64> {
    match kind {
        0 | 1 | 7 => Some(1),
        2 | 3 => Some(2),
        4..=6 => Some(4),
        8 | 10..=12 => Some(8),
        _ => None,
    }
}
