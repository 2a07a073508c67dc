"""The calls of Google Drive that list and authenticate, made by Google's own client."""

import http.client
import json
from pathlib import Path
from typing import Any

from quire.clock import SystemClock
from quire.errors import FetchFailed, SourceRefused, install_hint
from quire.fetch.http_client import Broken
from quire.fetch.items import PAGE, SourceOptions
from quire.fetch.network import require_allowed
from quire.fetch.transfer import response_headers
from quire.fetch.transfer.download import refusal
from quire.fetch.transfer.retry import Patience

_ENDPOINT = "https://www.googleapis.com"
_SCOPES = ["https://www.googleapis.com/auth/drive.readonly"]
_PATIENCE_OF_ONE_CALL = 60.0
_FIELDS = (
    "id,name,mimeType,size,md5Checksum,sha256Checksum,modifiedTime,headRevisionId,driveId,"
    "shortcutDetails(targetId,targetMimeType),capabilities(canDownload)"
)


class DriveApi:
    """A connection to Google Drive with the credentials of a file."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self.root = (options.endpoint or _ENDPOINT).rstrip("/") + "/drive/v3/"
        self._credentials: Any = None
        self._drive: Any = None
        self._http: Any = None

    def close(self) -> None:
        """Close the connections; the next call opens others."""
        if self._http is not None:
            self._http.close()

    def file(self, file_id: str) -> dict[str, Any]:
        """Return what Drive knows of one file or folder."""
        files = self._client().files()
        request = files.get(fileId=file_id, fields=_FIELDS, supportsAllDrives=True)
        return self._call(f"gdrive:{file_id}", request)

    def children(
        self, folder_id: str, drive: str | None, page: str | None
    ) -> tuple[list[dict[str, Any]], str | None]:
        """Return one page of a folder and the token of the next."""
        where = {"corpora": "drive", "driveId": drive} if drive else {}
        request = self._client().files().list(
            q=f"'{folder_id}' in parents and trashed = false",
            orderBy="name",
            pageSize=PAGE,
            pageToken=page,
            fields=f"nextPageToken,files({_FIELDS})",
            supportsAllDrives=True,
            includeItemsFromAllDrives=True,
            **where,
        )  # fmt: skip
        try:
            answer = self._call(f"gdrive:{folder_id}", request)
        except SourceRefused:
            if page is None:
                raise
            # The token is too old: the folder is listed from its start, what is known is skipped.
            return self.children(folder_id, drive, None)
        return answer.get("files", []), answer.get("nextPageToken")

    def token(self) -> str:
        """Return a token that is valid now."""
        self._client()
        if not self._credentials.valid:
            self.refresh()
        return str(self._credentials.token)

    def refresh(self) -> bool:
        """Get another token, after one was refused or has expired."""
        import google_auth_httplib2
        from google.auth.exceptions import RefreshError, TransportError

        connection = _connection()
        try:
            self._credentials.refresh(google_auth_httplib2.Request(connection))
        except RefreshError as error:
            raise SourceRefused(
                f"Google Drive: the credentials are refused ({error.args[0]}). "
                "Renew the credentials file."
            ) from error
        except (TransportError, OSError) as error:
            raise Broken(f"no token could be had ({error})") from error
        finally:
            connection.close()
        return True

    def _call(self, subject: str, request: Any) -> dict[str, Any]:
        patience = Patience(subject, self._options, lambda: None)
        while True:
            try:
                return dict(self._tried(subject, request))
            except Broken as broken:
                patience.bear(broken)

    def _tried(self, subject: str, request: Any) -> Any:
        import httplib2  # type: ignore[import-untyped]
        from google.auth.exceptions import RefreshError, TransportError
        from googleapiclient.errors import HttpError

        try:
            self.token()
            return request.execute()
        except HttpError as error:
            raise _judged(subject, error) from error
        except RefreshError as error:
            raise SourceRefused(
                f"{subject}: the credentials are refused ({error.args[0]}). "
                "Renew the credentials file."
            ) from error
        except (
            OSError,
            TransportError,
            httplib2.HttpLib2Error,
            http.client.HTTPException,
        ) as error:
            raise Broken(f"the connection failed ({error or type(error).__name__})") from error

    def _client(self) -> Any:
        if self._drive is None:
            try:
                import google_auth_httplib2
                from googleapiclient.discovery import build
            except ImportError as error:
                raise SourceRefused(
                    "Google Drive needs a package that is not installed. "
                    f"Run: {install_hint('gdrive')}"
                ) from error
            if self._options.endpoint:
                require_allowed(self._options.endpoint, self._options)
            self._credentials = _credentials(self._options.credentials)
            self._http = _connection()
            self._drive = build(
                "drive",
                "v3",
                http=google_auth_httplib2.AuthorizedHttp(self._credentials, http=self._http),
                client_options={"api_endpoint": self.root},
                cache_discovery=False,
                static_discovery=True,
            )
        return self._drive


def _connection() -> Any:
    import httplib2

    return httplib2.Http(timeout=_PATIENCE_OF_ONE_CALL)


def _judged(subject: str, error: Any) -> Exception:
    """Turn an error of Google's client into another try or into the end."""
    status, body = int(error.resp.status), error.content.decode("utf-8", "replace")
    later = status >= 500 or status in (408, 429)
    if later or (status == 403 and response_headers.is_rate_limit(body)):
        headers = {str(key).lower(): str(value) for key, value in error.resp.items()}
        pause = response_headers.retry_after(headers, SystemClock().now().wall)
        return Broken(f"the server answers {status}", pause)
    return refusal(subject, status, response_headers.google_message(body))


def _credentials(path: Path | None) -> Any:
    from google.oauth2 import credentials, service_account

    if path is None:
        raise SourceRefused(
            "Google Drive: no credentials file is set. Set QUIRE_GDRIVE_CREDENTIALS to the file "
            "of a service account or of an authorized user."
        )
    try:
        known = json.loads(path.read_text())
        if known.get("type") == "service_account":
            robot: Any = service_account.Credentials
            return robot.from_service_account_info(known, scopes=_SCOPES)
        person: Any = credentials.Credentials
        user = person.from_authorized_user_info(known, scopes=_SCOPES)
        # Google's reader leaves out the place where the file says that tokens are had.
        return user.with_token_uri(known["token_uri"]) if known.get("token_uri") else user
    except FileNotFoundError:
        raise SourceRefused(f"{path}: the credentials file is not there.") from None
    except OSError as error:
        raise FetchFailed(f"{path}: cannot be read ({error.strerror}).") from error
    except (ValueError, AttributeError) as error:
        raise SourceRefused(
            f"{path}: is no file of a service account or of an authorized user ({error})."
        ) from error
