# cmake -DPAGE=FILE.html -DOUTPUT=FILE.cc -P EmbedPage.cmake: the page's bytes as C++, with a policy
# that allows its one <script> and its one <style> by their hashes.
file(READ ${PAGE} page)
file(READ ${PAGE} bytes HEX)

# What stands between <TAG> and </TAG>, as 'sha256-...'.
function(source_of tag result)
  string(FIND "${page}" "<${tag}>" first)
  string(FIND "${page}" "<${tag}" last_open REVERSE)
  string(FIND "${page}" "</${tag}>" last)
  if(first EQUAL -1 OR NOT first EQUAL last_open OR last LESS first)
    message(FATAL_ERROR "${PAGE}: there must be one <${tag}>, without attributes")
  endif()
  string(LENGTH "<${tag}>" length)
  math(EXPR first "${first} + ${length}")
  math(EXPR length "${last} - ${first}")
  string(SUBSTRING "${page}" ${first} ${length} content)
  string(SHA256 digits "${content}")
  # Base64 of the 32 bytes: three hexadecimal digits are two characters.
  string(APPEND digits "00")
  set(alphabet "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")
  set(encoded "")
  foreach(at RANGE 0 63 3)
    string(SUBSTRING ${digits} ${at} 3 group)
    math(EXPR high "0x${group} >> 6")
    math(EXPR low "0x${group} & 63")
    string(SUBSTRING ${alphabet} ${high} 1 high)
    string(SUBSTRING ${alphabet} ${low} 1 low)
    string(APPEND encoded ${high}${low})
  endforeach()
  string(SUBSTRING ${encoded} 0 43 encoded)
  set(${result} "'sha256-${encoded}='" PARENT_SCOPE)
endfunction()

source_of(script script)
source_of(style style)
string(CONCAT policy "default-src 'none'; script-src ${script}; style-src ${style}; img-src data:; "
  "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
  "require-trusted-types-for 'script'; trusted-types 'none'")
string(REGEX REPLACE "(..)" "0x\\1," bytes "${bytes}")
file(WRITE ${OUTPUT} "#include \"src/server/conversations_page.h\"

namespace parkade {
namespace {

constexpr unsigned char kPage[] = {
${bytes}
};

}  // namespace

ConversationsPage GetConversationsPage() {
  return {{reinterpret_cast<const char*>(kPage), sizeof(kPage)}, \"${policy}\"};
}

}  // namespace parkade
")
