#include "tests/e2e/scrape.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <sstream>

namespace gemmd::e2e {
namespace {

std::string HttpGet(const std::string& address, const std::string& path) {
  const size_t colon = address.rfind(':');
  sockaddr_in to = {};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<uint16_t>(std::atoi(address.c_str() + colon + 1)));
  inet_pton(AF_INET, address.substr(0, colon).c_str(), &to.sin_addr);
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const timeval limit = {10, 0};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
  std::string reply;
  if (connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof(to)) == 0) {
    const std::string request =
        "GET " + path + " HTTP/1.1\r\nHost: " + address + "\r\nConnection: close\r\n\r\n";
    char buffer[65536];
    if (write(fd, request.data(), request.size()) == static_cast<ssize_t>(request.size())) {
      for (ssize_t n; (n = read(fd, buffer, sizeof(buffer))) > 0;) reply.append(buffer, n);
    }
  }
  close(fd);
  return reply;
}

}  // namespace

Samples Scrape(const std::string& address) {
  const std::string reply = HttpGet(address, "/metrics");
  Samples samples;
  const size_t body = reply.find("\r\n\r\n");
  if (body == std::string::npos) return samples;
  std::istringstream lines(reply.substr(body + 4));
  for (std::string line; std::getline(lines, line);) {
    const size_t space = line.rfind(' ');
    if (line.empty() || line[0] == '#' || space == std::string::npos) continue;
    samples[line.substr(0, space)] = std::strtod(line.c_str() + space + 1, nullptr);
  }
  return samples;
}

double Sum(const Samples& samples, const std::string& name, const std::string& label) {
  double sum = 0;
  for (const auto& [series, value] : samples) {
    const bool named = series == name || series.rfind(name + "{", 0) == 0;
    if (named && series.find(label) != std::string::npos) sum += value;
  }
  return sum;
}

}  // namespace gemmd::e2e
