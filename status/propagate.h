// How a function passes on the errors of those it calls, as Abseil's users write it everywhere:
//
//   absl::StatusOr<Config> Load(const std::string& path) {
//     GEMMD_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
//     GEMMD_RETURN_IF_ERROR(CheckSize(text));
//     return Parse(text);
//   }
//
// Where the error is changed on its way, or something is cleaned up first, write the `if` out.

#pragma once

#include <utility>

#include "absl/status/status.h"

// `expr` is an absl::Status.
#define GEMMD_RETURN_IF_ERROR(expr)                                   \
  do {                                                                \
    if (absl::Status failed_ = (expr); !failed_.ok()) return failed_; \
  } while (false)

// The expression after `target` is an absl::StatusOr. Its value goes to `target`: a declaration, or
// a variable. These are several statements: an `if` around them needs braces.
#define GEMMD_ASSIGN_OR_RETURN(target, ...) \
  GEMMD_ASSIGN_OR_RETURN_(GEMMD_STATUS_OR_(__LINE__), target, (__VA_ARGS__))
#define GEMMD_ASSIGN_OR_RETURN_(result, target, expr)  \
  auto result = expr;                                  \
  if (!result.ok()) return std::move(result).status(); \
  target = *std::move(result)
#define GEMMD_STATUS_OR_(line) GEMMD_STATUS_OR__(line)
#define GEMMD_STATUS_OR__(line) status_or_##line
