//! `filesystem usage`, in the format of btrfs-progs.

mod table;

use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use userbtrfs::{BlockGroupFlags, Filesystem, SpaceUse, Usage};

use crate::cli::admin::mounted::request_at;
use crate::cli::admin::subvolume::place::{mountpoint, print};
use crate::cli::args::{Format, Global, RootArgs};
use crate::cli::block_groups::kind_name;
use crate::cli::output::{with_name, write_json};
use crate::cli::size_units::{SizeArgs, Units};

/// Less unallocated space is not counted as free.
const UNALLOCATED_MIN: u64 = 16 << 20;

/// The order of types in the output.
const TYPES: [BlockGroupFlags; 4] = [
    BlockGroupFlags::DATA,
    BlockGroupFlags::DATA.union(BlockGroupFlags::METADATA),
    BlockGroupFlags::METADATA,
    BlockGroupFlags::SYSTEM,
];

#[derive(clap::Args)]
pub(crate) struct UsageArgs {
    #[command(flatten)]
    root: RootArgs,
    /// More directories in mounts
    #[arg(value_name = "PATH")]
    more: Vec<PathBuf>,
    /// Show the types and profiles as a table
    #[arg(short = 'T')]
    table: bool,
    #[command(flatten)]
    sizes: SizeArgs,
}

/// The options of the output.
pub(super) struct Options {
    pub(super) units: Units,
    /// True if types and profiles are columns of a table.
    pub(super) is_table: bool,
}

pub(super) fn run(global: &Global, args: &UsageArgs) -> Result<ExitCode> {
    let image = &args.root.image.image;
    if let Some(point) = mountpoint(&args.root)? {
        let mut words: Vec<OsString> = vec!["filesystem-usage".into()];
        words.extend(args.table.then(|| "-T".into()));
        words.extend(args.sizes.words());
        request_at(global, point, &words)?;
        for path in &args.more {
            if global.format == Format::Text {
                println!();
            }
            request_at(global, path, &words)?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    ensure!(args.more.is_empty(), "{}: only one image can be shown", image.display());
    print(global, &args.root, |out, filesystem| {
        let options = Options { units: args.sizes.units(), is_table: args.table };
        write_usage(out, filesystem, image, &options, global.format)
    })
}

/// The numbers of the first part, in bytes of the device except where they are of content.
struct Overall {
    used: u64,
    unallocated: u64,
    /// Bytes of content that files can still take: if all new chunks are of data, and if they have
    /// as many copies as any chunk has.
    free: u64,
    free_min: u64,
    /// As statfs(2) returns it.
    available: u64,
    data: Ratio,
    metadata: Ratio,
}

/// The bytes of chunks on the device, and the bytes of their content.
#[derive(Clone, Copy)]
struct Ratio {
    device: u64,
    content: u64,
}

impl Ratio {
    fn of(usage: &Usage, flags: BlockGroupFlags) -> Self {
        let rows = || usage.kinds.iter().filter(|row| row.flags.contains(flags));
        let device = rows().map(SpaceUse::device_total).sum();
        Self { device, content: rows().map(|row| row.total).sum() }
    }

    /// Returns the content of this many bytes of the device.
    fn content_of(self, device_bytes: u64) -> u64 {
        let Self { device, content } = self;
        let scaled = u128::from(device_bytes) * u128::from(content);
        scaled.checked_div(device.into()).map_or(device_bytes, |bytes| {
            u64::try_from(bytes).expect("content takes at least as much on the device")
        })
    }

    fn value(self) -> f64 {
        if self.content == 0 { 1.0 } else { quotient(self.device, self.content) }
    }
}

#[expect(clippy::cast_precision_loss, reason = "it is shown with two decimals")]
fn quotient(part: u64, whole: u64) -> f64 {
    part as f64 / whole as f64
}

impl Overall {
    fn new(usage: &Usage, available: u64) -> Self {
        let data = Ratio::of(usage, BlockGroupFlags::DATA);
        let metadata = Ratio::of(usage, BlockGroupFlags::METADATA);
        let of_data = usage.kinds.iter().filter(|row| row.flags.contains(BlockGroupFlags::DATA));
        let free = of_data.map(|row| row.device_total().saturating_sub(row.device_used())).sum();
        let is_mixed = usage.kinds.iter().any(|row| row.flags == TYPES[1]);
        // In mixed groups, data cannot take the global reserve.
        let kept = if is_mixed { usage.global_reserve } else { 0 };
        let free = data.content_of(free).saturating_sub(kept);
        let unallocated = usage.device_size.saturating_sub(usage.device_allocated);
        let for_chunks = if unallocated < UNALLOCATED_MIN { 0 } else { unallocated };
        let content_min = [data.content_of(for_chunks), metadata.content_of(for_chunks)];
        Self {
            used: usage.kinds.iter().map(SpaceUse::device_used).sum(),
            unallocated,
            free: free.saturating_add(data.content_of(for_chunks)),
            free_min: free.saturating_add(content_min.into_iter().min().unwrap_or(0)),
            available,
            data,
            metadata,
        }
    }
}

/// Returns the types and profiles in the order of the output.
fn sorted(usage: &Usage) -> Vec<SpaceUse> {
    let of_type = |flags: &BlockGroupFlags| {
        let flags = *flags;
        usage.kinds.iter().filter(move |row| row.flags == flags).copied()
    };
    TYPES.iter().flat_map(of_type).collect()
}

/// Returns the names of the types that have several profiles, as the output shows them.
fn with_several_profiles(usage: &Usage) -> Vec<&'static str> {
    let count = |flags: &BlockGroupFlags| {
        usage.kinds.iter().filter(|row| row.flags.contains(*flags)).count()
    };
    let names = [
        (BlockGroupFlags::DATA, "data"),
        (BlockGroupFlags::METADATA, "metadata"),
        (BlockGroupFlags::SYSTEM, "system"),
    ];
    names.iter().filter(|(flags, _)| count(flags) > 1).map(|(_, name)| *name).collect()
}

/// Writes the use of space; `device` is the name of the device in the output.
pub(super) fn write_usage(
    out: &mut dyn Write,
    filesystem: &Filesystem,
    device: &Path,
    options: &Options,
    format: Format,
) -> Result<()> {
    let usage = filesystem.usage()?;
    let overall = Overall::new(&usage, filesystem.space_left()?.available);
    if format == Format::Json {
        return write_json(out, "filesystem-usage", &document(&usage, &overall, device));
    }
    write_overall(out, &usage, &overall, options.units)?;
    if options.is_table {
        return table::write(out, &usage, &sorted(&usage), device, options.units);
    }
    let device = device.display();
    for row in sorted(&usage) {
        let size = options.units.text(row.total);
        let used = options.units.text(row.used);
        let share = 100.0 * if row.total == 0 { 0.0 } else { quotient(row.used, row.total) };
        let kind = kind_name(row.flags);
        let profile = row.profile.name();
        writeln!(out, "\n{kind},{profile}: Size:{size}, Used:{used} ({share:.2}%)")?;
        writeln!(out, "   {device}\t{:>10}", options.units.text(row.device_total()))?;
    }
    writeln!(out, "\nUnallocated:")?;
    writeln!(out, "   {device}\t{:>10}", options.units.text(overall.unallocated))?;
    Ok(())
}

fn write_overall(
    out: &mut dyn Write,
    usage: &Usage,
    overall: &Overall,
    units: Units,
) -> Result<()> {
    let width = if units == (Units::Human { si: false }) { 10 } else { 18 };
    let size = |bytes: u64| format!("{:>width$}", units.text(bytes));
    let several = with_several_profiles(usage);
    let several = match several.as_slice() {
        [] => format!("{:>width$}", "no"),
        names => format!("{:>width$}\t({})", "yes", names.join(", ")),
    };
    let free = format!("{}\t(min: {})", size(overall.free), units.text(overall.free_min));
    let reserve = format!("{}\t(used: {})", size(usage.global_reserve), units.text(0));
    let rows: [(&str, String); 12] = [
        ("Device size:\t\t", size(usage.device_size)),
        ("Device allocated:\t\t", size(usage.device_allocated)),
        ("Device unallocated:\t\t", size(overall.unallocated)),
        ("Device missing:\t\t", size(0)),
        ("Device slack:\t\t", size(usage.device_slack)),
        ("Used:\t\t\t", size(overall.used)),
        ("Free (estimated):\t\t", free),
        ("Free (statfs, df):\t\t", size(overall.available)),
        ("Data ratio:\t\t\t", format!("{:>width$.2}", overall.data.value())),
        ("Metadata ratio:\t\t", format!("{:>width$.2}", overall.metadata.value())),
        ("Global reserve:\t\t", reserve),
        ("Multiple profiles:\t\t", several),
    ];
    writeln!(out, "Overall:")?;
    for (name, value) in rows {
        writeln!(out, "    {name}{value}")?;
    }
    Ok(())
}

fn document(usage: &Usage, overall: &Overall, device: &Path) -> Value {
    let row = |row: &SpaceUse| {
        json!({
            "bg_type": kind_name(row.flags),
            "bg_profile": row.profile.name(),
            "total": row.total,
            "used": row.used,
            "device_total": row.device_total(),
        })
    };
    let document = json!({
        "device_id": usage.device_id,
        "device_size": usage.device_size,
        "device_allocated": usage.device_allocated,
        "device_unallocated": overall.unallocated,
        "device_missing": 0,
        "device_slack": usage.device_slack,
        "used": overall.used,
        "free_estimated": overall.free,
        "free_min": overall.free_min,
        "free_statfs": overall.available,
        "data_ratio": overall.data.value(),
        "metadata_ratio": overall.metadata.value(),
        "global_reserve": usage.global_reserve,
        "multiple_profiles": with_several_profiles(usage),
        "block_groups": sorted(usage).iter().map(row).collect::<Vec<_>>(),
    });
    with_name(document, "device", device.as_os_str().as_encoded_bytes())
}
