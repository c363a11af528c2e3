// The CRC-16 of short frames and messages: x^16 + x^12 + x^5 + 1, high bit first, eight bytes at a time.
#pragma once
#include <cstddef>
#include <cstdint>

namespace desketch {

struct CrcTables {
  uint16_t of[8][256];  // of[k][v]: what the byte v does to the register when k more bytes follow
  constexpr CrcTables() : of{} {
    for (unsigned v = 0; v < 256; ++v) {
      unsigned crc = v << 8;
      for (int bit = 0; bit < 8; ++bit) crc = (crc << 1 ^ (crc & 0x8000u ? 0x1021u : 0u)) & 0xFFFFu;
      of[0][v] = uint16_t(crc);
    }
    for (int k = 1; k < 8; ++k)
      for (unsigned v = 0; v < 256; ++v) of[k][v] = uint16_t(of[k - 1][v] << 8 ^ of[0][of[k - 1][v] >> 8]);
  }
};

inline uint16_t crc16(const uint8_t* data, size_t size, uint16_t crc) {
  static constexpr CrcTables tables;
  const auto& of = tables.of;
  for (; size >= 8; size -= 8, data += 8)
    crc = uint16_t(of[7][data[0] ^ crc >> 8] ^ of[6][data[1] ^ (crc & 0xFF)] ^ of[5][data[2]] ^ of[4][data[3]] ^ of[3][data[4]] ^
                   of[2][data[5]] ^ of[1][data[6]] ^ of[0][data[7]]);
  for (; size; --size, ++data) crc = uint16_t(crc << 8 ^ of[0][crc >> 8 ^ *data]);
  return crc;
}

}  // namespace desketch
