"""Is the server of this container healthy? Asks HEALTH_URL (a node when absent), and ends with 0 or 1.

It is asked at loopback, so nobody's certificate is looked at. Source: docs/reference/http.md.
"""

import os
import ssl
import sys
import urllib.error
import urllib.request

URL = os.environ.get("HEALTH_URL", "http://127.0.0.1:8181/readyz")
TIMEOUT_S = 4.0

try:
    urllib.request.urlopen(URL, timeout=TIMEOUT_S, context=ssl._create_unverified_context()).close()  # noqa: S310, S323 - see above
except urllib.error.HTTPError as error:
    sys.exit(f"{URL}: {error.code} {error.read(2000).decode('utf-8', 'replace')}")
except OSError as error:
    sys.exit(f"{URL}: {error}")
