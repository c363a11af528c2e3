// The kernels without Python, for a processor that this machine only emulates: reads cases, writes the numbers they give.
//
//   portable sketch|desketch family key d b nnz blocked size segment scale threads < rows > rows
//   portable forth|back key b salt ... < rows > rows          (rows are float32, a key is four words)
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "operator.h"

using namespace desketch;

static std::vector<float> read_rows() {
  std::vector<float> rows;
  float x;
  while (std::fread(&x, sizeof x, 1, stdin) == 1) rows.push_back(x);
  return rows;
}

int main(int, char** argument) {
  auto next = [&] { return std::string(*++argument); };
  auto number = [&] { return std::strtoll((*++argument), nullptr, 10); };
  const std::string verb = next();
  const std::vector<float> rows = read_rows();
  std::vector<float> out;
  if (verb == "forth" || verb == "back") {
    Turn turn{};
    for (uint32_t& word : turn.key) word = uint32_t(number());
    turn.b = size_t(number()), turn.n = rows.size() / turn.b, turn.back = verb == "back";
    std::vector<uint32_t> salts;
    for (size_t i = 0; i < turn.n; ++i) salts.push_back(uint32_t(number()));
    turn.salts = salts.data();
    out.resize(rows.size());
    rotate_generic(turn, rows.data(), out.data(), 2);
  } else {
    const std::string family = next();
    Params p{};
    p.family = family.c_str();
    for (uint32_t& word : p.key) word = uint32_t(number());
    for (int64_t* field : {&p.d, &p.b, &p.nnz, &p.blocked, &p.size, &p.segment}) *field = number();
    p.scale = std::strtod(*++argument, nullptr);
    const int threads = int(number());
    const std::unique_ptr<Operator> R(draw_generic(p));
    const bool forth = verb == "sketch";
    const size_t n = rows.size() / size_t(forth ? p.d : p.b);
    out.resize(n * size_t(forth ? p.b : p.d));
    if (forth) R->sketch(rows.data(), out.data(), n, threads);
    else R->desketch(rows.data(), out.data(), n, 1.0, false, threads);
  }
  std::fwrite(out.data(), sizeof(float), out.size(), stdout);
}
