#pragma once

#include <memory>

#include "tests/support/copier_side.h"

namespace parkade::test {

// Cards, through whatever runtime the program is linked to.
std::unique_ptr<CopierSide> MakeCudaSide();

}  // namespace parkade::test
