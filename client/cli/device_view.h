// How gemmctl shows devices: the same columns and the same keys wherever they appear.

#pragma once

#include <string>

#include "client/cli/args/output.h"
#include "client/cli/args/page.h"

namespace gemmd::v1 {
class Device;
}  // namespace gemmd::v1

namespace gemmd::cli {

// An alarm when the device does not serve.
Cell StateCell(const v1::Device& device);

// The message, and what is left of its memory.
Json DeviceJson(const v1::Device& device);

// "1980 MHz", "312 of 700 W", "41 C"; "-" where the device does not tell.
std::string ClockText(const v1::Device& device);
std::string PowerText(const v1::Device& device);
std::string TemperatureText(const v1::Device& device);

// "1"; "-" where it is bound to none.
std::string NodeText(const v1::Device& device);

}  // namespace gemmd::cli
