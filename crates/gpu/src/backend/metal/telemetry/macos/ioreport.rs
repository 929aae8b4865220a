//! A subscription to the GPU's channels of IOReport.
//!
//! The library is private: it is opened at run time, so that a macOS without it, or without one of
//! its functions, is a reason and no program that can't start. Signatures are as public tools use
//! them; only the channels that are read are subscribed to, as sampling costs the GPU something.

use crate::backend::metal::telemetry::channel::{
    Channel, ENERGY_CHANNELS, ENERGY_GROUP, STATES_CHANNEL, STATES_GROUP, Value,
};
use libloading::Library;
use objc2_core_foundation::{
    CFArray, CFDictionary, CFMutableArray, CFMutableDictionary, CFRetained, CFString, CFType,
};
use std::ffi::{c_int, c_void};
use std::ptr::{NonNull, null};

const LIBRARY: &str = "/usr/lib/libIOReport.dylib";
/// Where a list of channels has its channels.
const CHANNELS: &str = "IOReportChannels";

/// More states than any GPU has: a count beyond is no count.
const STATES_MAX: c_int = 256;

type Text = Option<NonNull<CFString>>;
// SAFETY: for a channel of a list or sample that is alive.
type OfChannel<T> = unsafe extern "C" fn(&CFDictionary) -> T;
// SAFETY: for such a channel; an index below its number of states, or 0 for a single number.
type OfState<T> = unsafe extern "C" fn(&CFDictionary, c_int) -> T;
// SAFETY: the texts are alive; what it returns is the caller's.
type CopyChannels = unsafe extern "C" fn(
    group: &CFString,
    subgroup: Option<&CFString>,
    u64,
    u64,
    u64,
) -> Option<NonNull<CFDictionary>>;
// SAFETY: the list is alive and one pointer is writable; what it returns is the caller's.
type CreateSubscription = unsafe extern "C" fn(
    *const c_void,
    desired: &CFMutableDictionary,
    subscribed: *mut Option<NonNull<CFMutableDictionary>>,
    u64,
    *const c_void,
) -> Option<NonNull<CFType>>;
// SAFETY: the list is the subscription's; what it returns is the caller's.
type CreateSamples = unsafe extern "C" fn(
    subscription: &CFType,
    channels: &CFMutableDictionary,
    *const c_void,
) -> Option<NonNull<CFDictionary>>;

/// The functions that are used, and the library that they are in.
struct Functions {
    copy_channels: CopyChannels,
    create_subscription: CreateSubscription,
    create_samples: CreateSamples,
    group: OfChannel<Text>,
    subgroup: OfChannel<Text>,
    name: OfChannel<Text>,
    unit: OfChannel<Text>,
    state_count: OfChannel<c_int>,
    state_name: OfState<Text>,
    state_residency: OfState<i64>,
    integer: OfState<i64>,
    _library: Library,
}

impl Functions {
    fn load() -> Result<Functions, String> {
        // SAFETY: a library of the system, whose initialisers run at most once a process.
        let library = unsafe { Library::new(LIBRARY) };
        let library = library.map_err(|error| format!("{LIBRARY} can't be opened: {error}"))?;
        macro_rules! function {
            ($name:literal) => {
                // SAFETY: the type is the function's, as public tools call it, and the pointer is
                // kept beside the library that it points into.
                unsafe { library.get(concat!($name, "\0").as_bytes()) }
                    .map(|found| *found)
                    .map_err(|_| format!("{LIBRARY} has no {}", $name))?
            };
        }
        Ok(Functions {
            copy_channels: function!("IOReportCopyChannelsInGroup"),
            create_subscription: function!("IOReportCreateSubscription"),
            create_samples: function!("IOReportCreateSamples"),
            group: function!("IOReportChannelGetGroup"),
            subgroup: function!("IOReportChannelGetSubGroup"),
            name: function!("IOReportChannelGetChannelName"),
            unit: function!("IOReportChannelGetUnitLabel"),
            state_count: function!("IOReportStateGetCount"),
            state_name: function!("IOReportStateGetNameForIndex"),
            state_residency: function!("IOReportStateGetResidency"),
            integer: function!("IOReportSimpleGetIntegerValue"),
            _library: library,
        })
    }
}

/// An open subscription.
pub struct Reader {
    functions: Functions,
    subscription: CFRetained<CFType>,
    channels: CFRetained<CFMutableDictionary>,
}

// SAFETY: objects of Core Foundation may be used and released on any thread, by one at a time; the
// reader is the only owner of its own and is not `Sync`.
unsafe impl Send for Reader {}

impl Reader {
    /// Subscribes to the GPU's p-states and its energy counters.
    ///
    /// # Errors
    /// Says what macOS does not have or did not allow.
    pub fn open() -> Result<Reader, String> {
        let functions = Functions::load()?;
        let (group, subgroup) = STATES_GROUP;
        let states = functions.channels_of(group, Some(subgroup));
        let energy = functions.channels_of(ENERGY_GROUP, None);
        let any = states.as_ref().or(energy.as_ref());
        let any =
            any.ok_or_else(|| format!("IOReport has neither `{group}` nor `{ENERGY_GROUP}`"))?;
        let wanted = CFMutableArray::<CFType>::empty();
        let mut count = 0;
        for (list, names) in [(&states, &[STATES_CHANNEL][..]), (&energy, &ENERGY_CHANNELS[..])] {
            let all = list.as_deref().map(each).unwrap_or_default();
            let named = all.iter().filter(|channel| {
                let name = functions.text(functions.name, channel);
                names.contains(&name.as_str())
            });
            for channel in named {
                wanted.append(channel);
                count += 1;
            }
        }
        if count == 0 {
            return Err(format!(
                "IOReport has none of the GPU's channels in `{group}` and `{ENERGY_GROUP}`"
            ));
        }
        // SAFETY: a mutable copy of a dictionary, with room for as much as it likes (0).
        let desired = unsafe { CFMutableDictionary::new_copy(None, 0, Some(any)) };
        let desired = desired.ok_or("a list of channels could not be copied")?;
        {
            // SAFETY: its keys are texts, and its values objects.
            let desired: &CFMutableDictionary<CFString, CFType> =
                unsafe { desired.cast_unchecked() };
            desired.set(&CFString::from_static_str(CHANNELS), &wanted);
        }
        functions.subscribe(desired)
    }

    /// The totals now.
    ///
    /// # Errors
    /// Says so if IOReport gives none.
    pub fn sample(&self) -> Result<Vec<Channel>, String> {
        let f = &self.functions;
        // SAFETY: subscription and channels belong together and are alive.
        let sample = unsafe { (f.create_samples)(&self.subscription, &self.channels, null()) };
        let sample = sample.ok_or("IOReport gave no sample")?;
        // SAFETY: it was created for us.
        let sample = unsafe { CFRetained::from_raw(sample) };
        Ok(each(&sample).iter().map(|channel| f.channel(channel)).collect())
    }
}

impl Functions {
    fn channels_of(&self, group: &str, subgroup: Option<&str>) -> Option<CFRetained<CFDictionary>> {
        let group = CFString::from_str(group);
        let subgroup = subgroup.map(CFString::from_str);
        // SAFETY: both texts are alive; the numbers are no filter.
        let found = unsafe { (self.copy_channels)(&group, subgroup.as_deref(), 0, 0, 0) }?;
        // SAFETY: it was copied for us.
        Some(unsafe { CFRetained::from_raw(found) })
    }

    fn subscribe(self, desired: CFRetained<CFMutableDictionary>) -> Result<Reader, String> {
        let mut subscribed = None;
        // SAFETY: the list is alive, and one pointer is written to.
        let subscription =
            unsafe { (self.create_subscription)(null(), &desired, &raw mut subscribed, 0, null()) };
        let subscription = subscription.ok_or("IOReport refused a subscription")?;
        // SAFETY: it was created for us; subscriptions are objects of Core Foundation.
        let subscription = unsafe { CFRetained::from_raw(subscription) };
        let channels = match subscribed {
            // Whether this list is ours is nowhere said. It is kept with a reference of our own:
            // at worst one small list stays behind for each opening, never one too few.
            // SAFETY: the list is alive, as it has just been made.
            Some(list) => unsafe { CFRetained::retain(list) },
            None => desired,
        };
        Ok(Reader { functions: self, subscription, channels })
    }

    fn channel(&self, channel: &CFDictionary) -> Channel {
        let name = self.text(self.name, channel);
        let value = match name == STATES_CHANNEL {
            true => Value::States(self.states(channel)),
            // SAFETY: it is a channel of a sample that is alive, and of one number as all that we
            // subscribe to but the states.
            false => Value::Simple(unsafe { (self.integer)(channel, 0) }),
        };
        Channel {
            group: self.text(self.group, channel),
            subgroup: self.text(self.subgroup, channel),
            name,
            unit: self.text(self.unit, channel).trim().to_owned(),
            value,
        }
    }

    fn states(&self, channel: &CFDictionary) -> Vec<(String, i64)> {
        // SAFETY: it is a channel of states, of a sample that is alive.
        let count = unsafe { (self.state_count)(channel) };
        let state = |index| {
            // SAFETY: as above, and the index is below the count.
            let (name, time) = unsafe {
                ((self.state_name)(channel, index), (self.state_residency)(channel, index))
            };
            (text(name), time)
        };
        (0..count.min(STATES_MAX)).map(state).collect()
    }

    fn text(&self, of: OfChannel<Text>, channel: &CFDictionary) -> String {
        // SAFETY: it is a channel of a list that is alive.
        text(unsafe { of(channel) })
    }
}

/// A text that its channel owns; none is empty.
fn text(text: Text) -> String {
    // SAFETY: it belongs to a channel that is alive while we copy it.
    text.map_or(String::new(), |text| unsafe { text.as_ref() }.to_string())
}

/// The channels of a list or sample, each with a reference of its own.
fn each(list: &CFDictionary) -> Vec<CFRetained<CFDictionary>> {
    // SAFETY: its keys are texts, its values objects.
    let list: &CFDictionary<CFString, CFType> = unsafe { list.cast_unchecked() };
    let channels = list.get(&CFString::from_static_str(CHANNELS));
    let Some(Ok(channels)) = channels.map(|found| found.downcast::<CFArray>()) else {
        return Vec::new();
    };
    // SAFETY: its entries are objects; each is looked at before it is taken for a dictionary.
    let channels: &CFArray<CFType> = unsafe { channels.cast_unchecked() };
    channels.iter().filter_map(|channel| channel.downcast::<CFDictionary>().ok()).collect()
}
